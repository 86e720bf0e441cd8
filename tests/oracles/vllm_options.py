"""Prints the options of the vLLM that is installed here, as its own parser has them.

    python vllm_options.py > options.json

Run by the Python of an environment with vLLM. The test of the list of options compares with it, and
a list for another version is made with it.
"""

import contextlib
import enum
import json
import sys
from argparse import Action
from typing import Any

with contextlib.redirect_stdout(sys.stderr):
    from vllm.entrypoints.launchers.cli_args import make_arg_parser
    from vllm.utils.argparse_utils import FlexibleArgumentParser

LONGEST = 40


def entry(action: Action) -> tuple[str, dict[str, Any]]:
    """An option's main name, and what is told of it."""
    name, *others = sorted(action.option_strings, key=main_first)
    told: dict[str, Any] = {"default": plain(action.default)}
    if others:
        told["aliases"] = others
    if action.choices:
        told["choices"] = [plain(choice) for choice in action.choices]
    if action.nargs == 0:
        told["flag"] = True
    return name, told


def main_first(spelling: str) -> tuple[bool, bool, int]:
    """Long before short, plain before negated, and the longest of those."""
    return not spelling.startswith("--"), spelling.startswith("--no-"), -len(spelling)


def plain(value: Any) -> Any:
    """A default as JSON can hold it; what is computed or long is left out."""
    if isinstance(value, enum.Enum):
        value = value.value
    if value is None or isinstance(value, bool | int | float):
        return value
    text = str(value)
    return text if len(text) <= LONGEST and " object at " not in text else None


def main() -> None:
    """Print them, one a line."""
    parser = make_arg_parser(FlexibleArgumentParser(add_help=False))
    options = dict(entry(action) for action in parser._actions if action.option_strings)
    lines = (f"{json.dumps(name)}: {json.dumps(told)}" for name, told in sorted(options.items()))
    print("{\n" + ",\n".join(lines) + "\n}")


if __name__ == "__main__":
    main()
