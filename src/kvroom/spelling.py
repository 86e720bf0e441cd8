"""Our words in an engine's spelling, found by asking its knobs; and back again."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from kvroom.engine import Engine
from kvroom.options import Options, flat, plain, without
from kvroom.settings import Settings, Speculative

SAMPLES: Mapping[str, tuple[Any, ...]] = {
    "slots": (8,),
    "max_len": (4096,),
    "kv_cache_dtype": ("fp8",),
    "kv_memory": (20 << 20,),
    "memory_fraction": (0.9,),
    "batch_tokens": (2048,),
    "prefix_cache": (False, True),
    "chunked_prefill": (False, True),
    "text_only": (True, False),
    "cuda_graphs": (False, 32, True),
    "state_dtype": ("float32",),
    "speculative": (Speculative(tokens=2),),
    "tensor_parallel": (2,),
    "threads": (4,),
}
"""Values of each setting that between them show every option it may become."""


class Spelling(msgspec.Struct, frozen=True, kw_only=True):
    """A setting, and the engine's options that it becomes."""

    setting: str
    names: tuple[str, ...]
    """Arguments with their dashes, dotted keys, variables."""


def spellings(engine: Engine) -> list[Spelling]:
    """The settings of an engine in our order."""
    return [
        Spelling(setting=setting, names=tuple(dict.fromkeys(_names(engine, setting))))
        for setting in SAMPLES
        if setting in engine.knobs
    ]


def _names(engine: Engine, setting: str) -> Iterator[str]:
    for value in SAMPLES[setting]:
        made = engine.knobs[setting](value, Settings(**{setting: value}))
        yield from option_names(made)


def option_names(options: Options) -> Iterator[str]:
    """The names of options in the engine's spelling."""
    yield from (
        word for word in options.arguments if word.startswith("-") and not word[1:2].isdigit()
    )
    yield from flat(options.config)
    yield from options.env


def read_back(engine: Engine, options: Options) -> dict[str, Any]:
    """Our settings as options in the engine's spelling have them, as far as they can be told.

    Of an option given twice the last counts, as it does for the engines.
    """
    found = {}
    for setting, samples in SAMPLES.items():
        knob = engine.knobs.get(setting)
        for sample in samples if knob else ():
            assert knob is not None
            value = _value(sample, knob(sample, Settings(**{setting: sample})), options)
            if value is not None:
                found[setting] = value
                break
    return found


def spelled_without(engine: Engine, options: Options, setting: str) -> Options:
    """The options less those that a setting becomes."""
    knob = engine.knobs.get(setting)
    arguments, config, env = list(options.arguments), dict(options.config), dict(options.env)
    for sample in SAMPLES.get(setting, ()) if knob else ():
        assert knob is not None
        made = knob(sample, Settings(**{setting: sample}))
        arguments = _dropped(arguments, made.arguments)
        for path in flat(made.config):
            config = without(config, path)
        for name in made.env:
            env.pop(name, None)
    return Options(arguments=tuple(arguments), config=config, env=env, files=options.files)


def _dropped(words: Sequence[str], made: Sequence[str]) -> list[str]:
    """Words of a command line without these options and what follows them as their value."""
    takes = {a: not b.startswith("--") for a, b in itertools.pairwise([*made, "--"])}
    left, skip = [], False
    for word in words:
        name, equals, _ = word.partition("=")
        if skip:
            skip = False
        elif name.startswith("-") and name in takes:
            skip = takes[name] and not equals
        else:
            left.append(word)
    return left


def _value(sample: Any, made: Options, options: Options) -> Any:
    """The value that stands where the sample would; or the sample, if all it becomes is there."""
    text = plain(sample)
    if not isinstance(sample, bool | Speculative):
        for before, word in itertools.pairwise(made.arguments):
            if word == text:
                return _after(before, options.arguments)
        for key, value in flat(made.config).items():
            if value == sample:
                return flat(options.config).get(key)
        return next((options.env.get(n) for n, value in made.env.items() if value == text), None)
    there = _follows(made.arguments, options.arguments) and made.env.items() <= options.env.items()
    asked = flat(made.config).items() <= flat(options.config).items()
    return sample if there and asked and (made.arguments or made.env or made.config) else None


def _after(name: str, words: Sequence[str]) -> str | None:
    for place in range(len(words) - 1, -1, -1):
        first, equals, value = words[place].partition("=")
        if first == name:
            return value if equals else words[place + 1] if place + 1 < len(words) else None
    return None


def _follows(part: Sequence[str], whole: Sequence[str]) -> bool:
    return any(tuple(whole[i : i + len(part)]) == tuple(part) for i in range(len(whole) + 1))
