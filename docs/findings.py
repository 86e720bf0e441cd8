"""Makes a page for each cause from the rules' docstrings and the catalogue of known failures."""

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, get_args

from kvroom.explain.finding import Cause
from kvroom.explain.rules import ELSE, STORY, Rule
from kvroom.explain.signatures import Signature, catalogue

MEANING = {
    "client-limited": "The load or our own client is the limit, not the engine.",
    "unsupported/crash": "The engine ended by itself, or cannot do what was asked.",
    "oom-at-start": "Memory does not suffice to start.",
    "runtime-oom": "Memory ran out while requests were served.",
    "weights-extra": "Something beside the weights that count takes their place.",
    "config-ignored/deprecated": "An option does nothing, or something else than is thought.",
    "state-fixed-cost": "What a request takes before its first token is the larger part.",
    "page-unification": "Layers of one kind force long pages on those of another.",
    "preemption/retraction": "Requests are let in, pushed out, and begun again.",
    "kv-exhausted": "The KV cache holds fewer requests than came.",
    "slots-limit": "As many run as may by setting.",
    "batch-token-limit": "A step holds no more tokens.",
    "cuda-graph-miss": "Steps run outside of the captured graphs.",
    "prefix-cache-effect": "Beginnings of prompts are found again, or are not.",
    "attention-backend-switch": "Another attention kernel runs than is thought.",
    "jit-compile/cold-start": "Time goes into compiling and capturing.",
    "host-noise": "The machine, not the engine, made the difference.",
    "warm-up": "The first rounds were slower than the engine is.",
    "wrong-lengths": "Answers are shorter or longer than asked.",
    "several-tokens-per-chunk": "Events carry several tokens.",
    "truncated-prompts": "The server saw another prompt than was sent.",
    "single-slot": "The server takes one request after the other.",
    "speculative-decoding": "Tokens are guessed ahead.",
    "sampling-defaults": "The engine samples otherwise than it was asked to.",
    "plan-differs": "The plan and the log do not agree.",
    "benign": "Nothing is wrong: the number is right, and this is what it means.",
}


def pages() -> dict[str, str]:
    """File names and texts."""
    causes = get_args(Cause)
    rules = [(rule, set(causes_of(rule))) for rule in (*STORY, *ELSE)]
    found = {
        f"{slug(cause)}.md": page(
            cause,
            [rule for rule, its in rules if cause in its],
            [one for one in catalogue() if one.cause == cause or cause in one.also],
        )
        for cause in causes
    }
    return {"README.md": index(causes), **found}


def slug(cause: str) -> str:
    """A cause as a file name."""
    return cause.replace("/", "-")


def index(causes: tuple[str, ...]) -> str:
    """All causes in the order of the story."""
    rows = [f"| [{cause}]({slug(cause)}.md) | {MEANING[cause]} |" for cause in causes]
    return "\n".join(["# Findings\n", INTRO, "| cause | meaning |", "|---|---|", *rows]) + "\n"


INTRO = """\
What `kvroom explain` can say, in the order in which it tells it: who asked, what came up, what held
the engine back, what that cost, what is noise. Each page says how the finding is made, by rules
over plan, log and measurement, and which lines of which engines show it by themselves.
"""


def page(cause: str, rules: list[Rule], known: list[Signature]) -> str:
    """One cause: its rules and the known lines."""
    parts = [f"# {cause}\n\n{MEANING[cause]}\n"]
    for rule in rules:
        parts.append(f"## {rule.__name__.replace('_', ' ')}\n\n{inspect.getdoc(rule)}\n")
    if known:
        parts.append("## Lines that show it\n\n" + "\n".join(entry(one) for one in known))
    return "\n".join(parts)


def entry(one: Signature) -> str:
    """A known failure: its line, what it means, what to do."""
    engines = ", ".join(one.engines) or "any engine"
    claim, remedy = (re.sub(r"\{(\w+)\}", r"*\1*", text) for text in (one.claim, one.remedy))
    return (
        f"### {one.name}\n\n{engines}, releases {one.versions}; known from {one.source}.\n\n"
        f"```text\n{one.example}\n```\n\n{sentence(claim)}"
        + (f" To do: {remedy}." if remedy else "")
        + "\n"
    )


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:]}."


def causes_of(rule: Rule) -> Iterator[str]:
    """The causes that a rule can find: those in it, and in what it calls of its own module."""
    module = sys.modules[rule.__module__]
    names = {rule.__name__, *called(module, rule.__name__)}
    for node in functions(module):
        if node.name in names:
            texts = (text for text in ast.walk(node) if isinstance(text, ast.Constant))
            yield from (str(text.value) for text in texts if text.value in get_args(Cause))


def called(module: ModuleType, name: str) -> set[str]:
    """Names that a function of a module calls."""
    nodes = (node for node in functions(module) if node.name == name)
    calls = (call for node in nodes for call in ast.walk(node) if isinstance(call, ast.Call))
    return {call.func.id for call in calls if isinstance(call.func, ast.Name)}


def functions(module: ModuleType) -> list[Any]:
    """The functions of a module."""
    tree = ast.parse(inspect.getsource(module))
    return [node for node in tree.body if isinstance(node, ast.FunctionDef)]
