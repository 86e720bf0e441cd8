"""YAML into typed values, where every complaint names the file, the line and the nearest right key.

msgspec checks the types and PyYAML knows the lines; this file joins the two.
"""

import difflib
import re
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import yaml

from kvroom.errors import InputError
from kvroom.units import Bytes, parse_bytes

T = TypeVar("T")
Steps = tuple[str | int, ...]

MAX_FILE_BYTES = 1 << 20
MAX_NODES = 100_000

_UNKNOWN = re.compile(r"Object contains unknown field `([^`]*)`")
_AT = re.compile(r" - at `(?:key in )?(\$[^`]*)`$")
_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")


def load(path: Path, kind: type[T]) -> T:
    """The file as a value of ``kind``; InputError names the place of whatever is wrong in it."""
    return parse(_read(path), kind, str(path))


def parse(text: str, kind: type[T], name: str) -> T:
    """YAML text as a value of ``kind``; ``name`` stands for the file in messages."""
    data, lines = _compose(text, name)
    try:
        return msgspec.convert(data, kind, dec_hook=_custom)
    except msgspec.ValidationError as error:
        raise _explain(str(error), kind, name, lines) from None


def _read(path: Path) -> str:
    try:
        if path.stat().st_size > MAX_FILE_BYTES:
            raise InputError(f"{path}: larger than {MAX_FILE_BYTES >> 20} MiB, not a matchup")
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError:
        raise InputError(f"{path}: not a UTF-8 text file") from None
    except OSError as error:
        raise InputError(f"{path}: {(error.strerror or str(error)).lower()}") from None


def _compose(text: str, name: str) -> tuple[Any, dict[Steps, int]]:
    loader = yaml.SafeLoader(text)
    try:
        node = loader.get_single_node()
        if node is None:
            raise InputError(f"{name}: the file is empty")
        _check_nodes(node, name)
        data = loader.construct_document(node)
        return data, {steps: found.start_mark.line + 1 for steps, found in _walk(node, ())}
    except yaml.MarkedYAMLError as error:
        line = f":{error.problem_mark.line + 1}" if error.problem_mark else ""
        raise InputError(f"{name}{line}: not valid YAML: {error.problem}") from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InputError(f"{name}: not valid YAML: {error}") from None
    finally:
        loader.dispose()


def _check_nodes(root: yaml.Node, name: str) -> None:
    """Refuse what PyYAML lets pass: a key given twice, and aliases that multiply without end."""
    for count, (_, node) in enumerate(_walk(root, ())):
        if count > MAX_NODES:
            raise InputError(f"{name}: more than {MAX_NODES} values, not a matchup")
        if not isinstance(node, yaml.MappingNode):
            continue
        seen: set[str] = set()
        for key, _value in node.value:
            text = str(key.value)
            if text in seen and key.tag != "tag:yaml.org,2002:merge":
                line = key.start_mark.line + 1
                raise InputError(f"{name}:{line}: the key {text!r} is given twice")
            seen.add(text)


def _walk(node: yaml.Node, steps: Steps) -> Iterator[tuple[Steps, yaml.Node]]:
    yield steps, node
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            yield from _walk_entry(key, value, steps)
    elif isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _walk(value, (*steps, index))


def _walk_entry(
    key: yaml.Node, value: yaml.Node, steps: Steps
) -> Iterator[tuple[Steps, yaml.Node]]:
    inner = (*steps, str(key.value))
    entries = _walk(value, inner)
    next(entries)
    yield inner, key if isinstance(value, yaml.ScalarNode) else _marked(value, key)
    yield from entries


def _marked(value: yaml.Node, key: yaml.Node) -> yaml.Node:
    """A mapping or list is said to stand where its key stands."""
    value.start_mark = key.start_mark
    return value


def _explain(message: str, kind: Any, name: str, lines: dict[Steps, int]) -> InputError:
    at = _AT.search(message)
    path = at[1] if at else "$"
    steps: Steps = tuple(word or int(index) for word, index in _STEP.findall(path))
    what = message[: at.start()] if at else message
    where = path.removeprefix("$").removeprefix(".")
    inside = f" in {where}" if where else ""
    unknown = _UNKNOWN.search(what)
    if unknown is None:
        line = _line_of(lines, steps)
        return InputError(f"{name}{line}: {where + ': ' if where else ''}{_lower(what)}")
    key = unknown[1]
    known = _keys_at(kind, steps)
    near = difflib.get_close_matches(key, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else "known keys: " + ", ".join(known)
    line = _line_of(lines, (*steps, key))
    return InputError(f"{name}{line}: unknown key {key!r}{inside}", hint)


def _line_of(lines: dict[Steps, int], steps: Steps) -> str:
    while steps and steps not in lines:
        steps = steps[:-1]
    return f":{lines[steps]}" if steps in lines else ""


def _lower(message: str) -> str:
    return (message[:1].lower() + message[1:]).replace("`", "'")


def _keys_at(kind: Any, steps: Steps) -> list[str]:
    for step in steps:
        kind = _child(kind, step)
    struct = next((k for k in _options(kind) if _is_struct(k)), None)
    return [field.encode_name for field in msgspec.structs.fields(struct)] if struct else []


def _child(kind: Any, step: str | int) -> Any:
    for option in _options(kind):
        if isinstance(step, int) and typing.get_origin(option) in (list, tuple):
            return typing.get_args(option)[0]
        if _is_struct(option):
            for field in msgspec.structs.fields(option):
                if field.encode_name == step:
                    return field.type
    return None


def _options(kind: Any) -> tuple[Any, ...]:
    if typing.get_origin(kind) is typing.Annotated:
        return _options(typing.get_args(kind)[0])
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return tuple(o for arg in typing.get_args(kind) for o in _options(arg))
    return (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


_CUSTOM: dict[type, Callable[[Any], Any]] = {Bytes: parse_bytes}


def _custom(kind: type, value: Any) -> Any:
    if kind not in _CUSTOM:
        raise NotImplementedError(f"no reader for {kind.__name__}")
    return _CUSTOM[kind](value)
