"""Everything known of one contender, from whichever side: what every rule is given."""

from collections.abc import Mapping

import msgspec

from kvroom import engines
from kvroom.analyse.contender import Measured
from kvroom.analyse.live import Live
from kvroom.analyse.metrics import LevelMetrics
from kvroom.analyse.noise import Noise
from kvroom.checkpoint.architecture import Architecture
from kvroom.engine import Engine
from kvroom.explain.course import Course, State
from kvroom.explain.log import Log
from kvroom.fit import Fit
from kvroom.plan.question import Planned, Question, Refused
from kvroom.records import Fact
from kvroom.room import release
from kvroom.settings import Settings


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """What is asked of the engine; None where nobody says."""

    prompt: int | None = None
    output: int | None = None
    concurrency: int | None = None
    conversations: int | None = None
    """Different texts that come back to be continued."""
    rate: bool = False
    """Whether requests come by the clock, whatever is still running."""

    @property
    def tokens(self) -> int:
        """Of one request, at least."""
        return (self.prompt or 0) + (self.output or 0)

    @property
    def given(self) -> bool:
        """Whether anything is known of it."""
        return any(value for value in msgspec.structs.asdict(self).values())


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """One engine with its settings under one load."""

    engine: str
    version: str = ""
    settings: Settings = Settings()
    """In effect: as the log says, else as given."""
    options: Mapping[str, str] = {}
    """The engine's own options and environment variables, as spelled, with their values."""
    load: Load = Load()
    architecture: Architecture | None = None
    block_tokens: int | None = None
    """Tokens of a page, where the user chose them."""
    overcommit: bool = False
    """Whether requests are let in whose end may not fit."""
    card: str = ""
    card_bytes: int | None = None
    log: Log | None = None
    question: Question | None = None
    """What the plan was asked."""
    planned: Planned | Refused | None = None
    measured: Measured | None = None
    level: int | None = None
    """The highest concurrency that was measured."""
    noise: Noise | None = None
    """Of the run it was measured in."""
    load_per_core: float | None = None
    """Runnable processes for each core before the run began."""
    observed: Course | None = None
    """By the engine's own gauges, while that level was measured."""
    failed: bool = False
    """Whether it never got ready, or ended by itself."""

    @property
    def adapter(self) -> Engine:
        """What is known of the engine in general."""
        return engines.engine(self.engine)

    def fact(self, name: str) -> Fact | None:
        """The last line of the log that says it."""
        return self.log.last(name) if self.log else None

    def number(self, name: str) -> float | None:
        """The value of that line, if it is a number."""
        fact = self.fact(name)
        return fact.value if fact and isinstance(fact.value, float) else None

    def state(self, name: str) -> State | None:
        """One of the moments that tell how busy the engine was: ``most_waiting``, ``fullest``."""
        found = getattr(self.course, name) if self.course else None
        return found if isinstance(found, State) else None

    @property
    def course(self) -> Course | None:
        """How busy the engine was: by its gauges, else by its log."""
        return self.observed or (self.log.course if self.log else None)

    @property
    def top(self) -> LevelMetrics | None:
        """What was measured at the level."""
        found = self.measured.level(self.level) if self.measured and self.level else None
        return found if found is not None and found.completed else None

    @property
    def live(self) -> Live | None:
        """What the engine's gauges showed while it was measured."""
        return self.measured.live.get(self.level) if self.measured and self.level else None

    @property
    def plan(self) -> Planned | None:
        """The plan, if the engine would start by it."""
        return self.planned if isinstance(self.planned, Planned) else None

    @property
    def fit(self) -> Fit | None:
        """What becomes of the load by the plan, in the smaller room of an interval."""
        if self.plan is None or self.load.concurrency is None or not self.load.tokens:
            return None
        return max(self.plan.fits, key=lambda few: few[0].running + few[0].waiting)[0]

    @property
    def slots(self) -> int | None:
        """The most requests at once, as set or as the engine chooses by itself."""
        return self.plan.room.slots if self.plan else self.settings.slots

    @property
    def hybrid(self) -> bool:
        """Whether some layers keep a state of fixed size."""
        return bool(self.architecture and self.architecture.states)

    @property
    def quantised(self) -> bool:
        """Whether the cache is asked to be smaller than 16 bits an element."""
        dtype = (self.settings.kv_cache_dtype or "auto").lower()
        return any(word in dtype for word in ("8", "4", "5")) and "16" not in dtype

    @property
    def is_async(self) -> bool:
        """Whether vLLM schedules the next step while one is computed: counted from 0.26 on."""
        off = "--no-async-scheduling" in self.options
        return self.engine == "vllm" and not off and not self.before(0, 26)

    def before(self, *version: int) -> bool:
        """Whether the release is known and older than this."""
        if not self.version or not self.version.lstrip("v")[:1].isdigit():
            return False
        return release(self.version, (0, 0, 0)) < (*version, 0, 0)[:3]
