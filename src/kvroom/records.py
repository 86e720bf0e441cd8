"""What is kept of a run: requests, log lines, and the facts read from them."""

from typing import Literal

import msgspec

Outcome = Literal[
    "completed",
    "refused",  # no connection
    "http_error",  # a status other than 200
    "stream_error",  # an error inside a stream that began with 200
    "cut",  # the connection ended before the answer did
    "stalled",  # silence longer than the time-out
    "short",  # ended early, or fewer tokens than forced
    "long",  # more tokens than forced
    "uncounted",  # the server never said how many tokens it sent
    "wrong_prompt",  # the server saw another prompt length than was sent
    "unreadable",  # not HTTP, not JSON, or larger than allowed
]

TokenSource = Literal["token_ids", "usage", "usage_spread", "none"]
ClockName = Literal["kernel", "user"]


class RequestRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One request of one round. Times are ns on the round's clock, which starts when it is due."""

    ordinal: int
    prompt_tokens: int
    output_tokens: int
    due_ns: int
    sent_ns: int | None
    first_byte_ns: int | None
    ended_ns: int
    event_ns: list[int]
    """Arrival of each event that carried tokens, on the clock named by ``clock``."""
    event_read_ns: list[int]
    """When our own loop read that event; what lies between the two is our lateness."""
    event_tokens: list[int]
    prompt_tokens_reported: int | None
    completion_tokens: int | None
    token_source: TokenSource
    clock: ClockName
    outcome: Outcome
    reason: str
    text: str


class RoundInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a round as a whole."""

    concurrency: int
    number: int
    started_ns: int
    """Monotonic ns at which the round's clock reads zero."""
    started_wall_s: float
    """The same moment in seconds since 1970."""
    prompts_sha256: str
    """Of all prompts of the round; equal hashes mean the same load."""
    load_average: float
    client_cpu_s: float


class LogLine(msgspec.Struct, frozen=True, gc=False):
    """One line an engine printed; ``at_s`` is seconds since its process started, if known."""

    number: int
    text: str
    at_s: float | None = None


class DeviceSample(msgspec.Struct, frozen=True, kw_only=True):
    """An accelerator at one moment."""

    name: str
    memory_bytes: int
    """Used by everybody."""
    power_w: float | None = None
    clock_mhz: int | None = None
    throttled: int | None = None
    """The driver's bit mask of reasons why the clock is held down; 0 is none."""


class Sample(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An engine at one moment, seen from outside the load."""

    at_ns: int
    """On the clock of the run."""
    gauges: dict[str, float] = {}
    """What its metrics say, in our words: running, waiting, kv_cache_usage, preempted, ..."""
    memory_bytes: int | None = None
    """Resident, of all its processes together."""
    cpu_s: float | None = None
    """Processor time of all its living processes so far."""
    devices: list[DeviceSample] = []


class Source(msgspec.Struct, frozen=True):
    """A line of a stored file."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


class Fact(msgspec.Struct, frozen=True, kw_only=True):
    """One thing an engine said of itself, in our words."""

    name: str
    value: float | str
    unit: str = ""
    source: Source
    at_s: float | None = None
    text: str = ""
    """The line, cut where it is long."""
