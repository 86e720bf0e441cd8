"""One contender that is ready to be measured: its requests as bytes, and whether it lives."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from kvroom.dialect import Dialect, Prompt
from kvroom.errors import EngineError
from kvroom.load.drive import Outgoing
from kvroom.load.prompts import Pool, fingerprint
from kvroom.load.request import Address, encode, expected_answer_bytes
from kvroom.observe import is_alive
from kvroom.prepare import Prepared
from kvroom.store import StartFiles
from kvroom.workload import PlannedRound

DEATH_WAIT_S, SETTLE_S = 15.0, 0.5
"""How long a death may take to show, and how long at least is waited for it."""


class Watch(NamedTuple):
    """How it is known that an engine lives."""

    check: Callable[[], None]
    family: Mapping[int, str]


@dataclass(frozen=True, kw_only=True)
class Session:
    """A contender that is ready to be measured."""

    prepared: Prepared
    address: Address
    dialect: Dialect
    extra: Mapping[str, Any]
    """Fields of every request beside the dialect's; None takes one away."""
    left_out: tuple[str, ...]
    """Fields that the server refused."""
    files: StartFiles
    served_model: str
    key: str | None
    pool: Pool
    check: Callable[[], None]
    """Raises EngineError if the engine has died; an endpoint of somebody else cannot be watched."""
    answers: Callable[[], bool]
    """Whether the engine answers its probe."""
    family: Mapping[int, str]
    """The processes of the engine when it was ready, with their names."""

    def requests(self, planned: PlannedRound, seed: int) -> tuple[list[Outgoing], str]:
        """The round's requests as bytes, and the fingerprint of their prompts."""
        prompts = [self.pool.prompt(r.ordinal, r.prompt_tokens, seed) for r in planned.requests]
        outgoing = [
            Outgoing(
                due_ns=request.due_ns,
                data=self._encoded(prompt, request.output_tokens),
                answer_bytes=expected_answer_bytes(request.output_tokens),
            )
            for request, prompt in zip(planned.requests, prompts, strict=True)
        ]
        return outgoing, fingerprint(prompts)

    @property
    def length_forced(self) -> bool:
        """Whether requests make the engine write as many tokens as were asked for."""
        return self.dialect.forces_length(self._body("", 1))

    def _body(self, prompt: Prompt, output_tokens: int) -> dict[str, Any]:
        body = {**self.dialect.request(self.served_model, prompt, output_tokens), **self.extra}
        return {name: value for name, value in body.items() if value is not None}

    def _encoded(self, prompt: Prompt, output_tokens: int) -> bytes:
        body = self._body(prompt, output_tokens)
        return encode(self.address, self.dialect.path, body, self.key)

    def check_death(self) -> None:
        """Return once the engine answers its probe; EngineError if it is dead.

        What ended first is the likeliest cause: a worker that was killed leaves nothing in the log
        but the complaints of those who waited for it.
        """
        cause = self._ended()
        began = time.monotonic()
        while time.monotonic() < began + DEATH_WAIT_S:
            try:
                self.check()
            except EngineError as error:
                raise EngineError(f"{cause}{error}", error.hint, error.last_lines) from None
            if time.monotonic() > began + SETTLE_S and self.answers():
                return
            time.sleep(0.05)
        raise EngineError(f"{cause}the engine does not answer its probe any more")

    def _ended(self) -> str:
        """Processes below the first one that are gone while it still lives."""
        pids = list(self.family)
        if not pids or not is_alive(pids[0]):
            return ""
        ended = [self.family[pid] for pid in pids[1:] if not is_alive(pid)]
        return f"{' and '.join(ended)} ended: " if ended else ""
