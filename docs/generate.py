"""Makes the reference pages that code can tell best: commands, matchup.yaml, engines.

python docs/generate.py           write them
python docs/generate.py --check   fail if one is stale
"""

import ast
import importlib
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import findings
import msgspec

from kvroom import cli, engines, matchup, settings
from kvroom.engine import Engine, Known
from kvroom.log_reader import LogReader
from kvroom.options import flat
from kvroom.settings import Settings
from kvroom.spelling import SAMPLES, spellings

REFERENCE = Path(__file__).parent / "reference"
NOTE = "<!-- made by docs/generate.py -->\n\n"


def main() -> None:
    """Write or check every page."""
    pages = {
        "commands.md": commands(),
        "matchup.md": matchup_keys(),
        "engines.md": engine_table(),
        "facts.md": facts(),
        **{f"../findings/{name}": NOTE + text for name, text in findings.pages().items()},
    }
    stale = [name for name, text in pages.items() if not same(REFERENCE / name, text)]
    if "--check" in sys.argv:
        sys.exit(f"stale: {', '.join(stale)}; run 'make docs'" if stale else 0)
    for name, text in pages.items():
        (REFERENCE / name).write_text(text)


def same(file: Path, text: str) -> bool:
    """Whether a page says what it should."""
    return file.exists() and file.read_text() == text


def commands() -> str:
    """The help of every command."""
    parts = [f"{NOTE}# Commands\n", COMMANDS_INTRO]
    root = click.Context(cli.main, info_name="kvroom", max_content_width=90)
    parts.append(block(cli.main.get_help(root)))
    for name, command in sorted(cli.main.commands.items()):
        context = click.Context(command, info_name=name, parent=root)
        parts += [f"\n## kvroom {name}\n", block(command.get_help(context))]
    return "\n".join(parts)


COMMANDS_INTRO = """\
Data goes to standard output, progress and warnings to standard error. `--json` prints data for
programs, `NO_COLOR` is respected, and nothing is said by colour alone.

| exit code | meaning |
|---:|---|
| 0 | measured; also when no difference is shown |
| 1 | a bug of kvroom |
| 2 | the input is wrong |
| 3 | an engine failed; the others were measured |
| 4 | a measurement is void: our client or the machine was the bottleneck |
| 130 | stopped by the user; what was measured is kept |
"""


def block(text: str) -> str:
    """Text as it appears in a terminal."""
    return f"```text\n{text.rstrip()}\n```"


def matchup_keys() -> str:
    """Every key of matchup.yaml, from the types that read it."""
    parts = [f"{NOTE}# matchup.yaml\n", MATCHUP_INTRO]
    docs = field_docs(Path(matchup.__file__)) | field_docs(Path(settings.__file__))
    for kind, where in SECTIONS:
        summary = (kind.__doc__ or "").strip()
        parts += [f"\n## {where}\n", f"{summary}\n", "| key | type | default | meaning |"]
        parts.append("|---|---|---|---|")
        parts += [field_row(f, docs[kind.__name__]) for f in msgspec.structs.fields(kind)]
    return "\n".join(parts) + "\n"


MATCHUP_INTRO = """\
A key that is not listed here is refused with its line and the nearest right one. `kvroom schema`
prints this as JSON Schema; an editor that knows YAML schemas then completes and checks as you type:

```yaml
# yaml-language-server: $schema=matchup.schema.json
```

Anchors, aliases and merge keys (`&name`, `*name`, `<<`) work as in any YAML file.
"""

SECTIONS: list[tuple[Any, str]] = [
    (matchup.Matchup, "At the top"),
    (matchup.Model, "model"),
    (settings.Limits, "limits"),
    (matchup.Workload, "workload"),
    (matchup.Timeouts, "timeouts"),
    (matchup.Contender, "contenders"),
    (matchup.Provide, "contenders: provide"),
    (settings.Settings, "contenders: settings"),
    (settings.Speculative, "contenders: settings: speculative"),
]


def field_docs(file: Path) -> dict[str, dict[str, str]]:
    """The docstring under each field, by class and field."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(file.read_text()).body:
        if isinstance(node, ast.ClassDef):
            found[node.name] = dict(documented(node))
    return found


def documented(node: ast.ClassDef) -> Iterator[tuple[str, str]]:
    """Each annotated field with what stands under it, and its type as written."""
    for index, statement in enumerate(node.body):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        after = node.body[index + 1] if index + 1 < len(node.body) else None
        text = ""
        if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant):
            text = " ".join(str(after.value.value).split())
        yield statement.target.id, text
        yield f"{statement.target.id}:", ast.unparse(statement.annotation)


PLAIN = {
    "Count": "number >= 1",
    "Level": "number >= 1",
    "Share": "number in (0, 1]",
    "Seconds": "seconds",
    "Bytes": "size",
    "str": "text",
    "int": "number",
    "float": "number",
    "bool": "true or false",
    "Any": "anything",
    "Contender": "[contender](#contenders)",
    "Limits": "[limits](#limits)",
    "Model": "[model](#model)",
    "Provide": "[provide](#contenders-provide)",
    "Settings": "[settings](#contenders-settings)",
    "Speculative": "[speculative](#contenders-settings-speculative)",
    "Timeouts": "[timeouts](#timeouts)",
    "Workload": "[workload](#workload)",
}


def field_row(field: msgspec.structs.FieldInfo, docs: dict[str, str]) -> str:
    """One key of the table."""
    if field.required:
        default = "required"
    elif field.default is None or isinstance(field.default, msgspec.Struct):
        default = ""
    elif field.default is msgspec.NODEFAULT or field.default == ():
        default = "none"
    else:
        shown = list(field.default) if isinstance(field.default, tuple) else field.default
        default = f"`{shown}`"
    text = docs[field.name].replace("|", "\\|").replace("``", "`")
    return f"| `{field.name}` | {type_words(docs[field.name + ':'])} | {default} | {text} |"


def type_words(annotation: str) -> str:
    """A type as a writer of YAML thinks of it."""
    tree = ast.parse(annotation, mode="eval").body
    return words(tree)


def words(node: ast.expr) -> str:
    """The words for one node of an annotation."""
    if isinstance(node, ast.BinOp):
        sides = (side for part in (node.left, node.right) for side in words(part).split(" or "))
        return " or ".join(dict.fromkeys(side for side in sides if side != "None"))
    if isinstance(node, ast.Subscript):
        return subscript_words(node)
    if isinstance(node, ast.Constant):
        return str(node.value)
    return PLAIN[ast.unparse(node)]


def subscript_words(node: ast.Subscript) -> str:
    """The words for ``list[X]``, ``dict[K, V]`` and ``Annotated[X, ...]``."""
    outer = ast.unparse(node.value)
    inner = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if outer == "Literal":
        return " or ".join(f"`{ast.literal_eval(one)}`" for one in inner)
    if outer == "Annotated":
        return words(inner[0])
    if outer == "dict":
        return f"mapping of {words(inner[0])} to {words(inner[1])}"
    return f"list of {words(inner[0])}"


def engine_table() -> str:
    """What each adapter knows of its engine."""
    parts = [f"{NOTE}# Engines\n", ENGINES_INTRO.rstrip()]
    for name in engines.names():
        parts.append(engine_section(engines.engine(name)))
    return "\n".join(parts)


ENGINES_INTRO = """\
One adapter each, in `src/kvroom/engines/`. A setting an engine does not have is refused before
anything starts; the engine's own options go under `flags`, come last and win.
"""


def engine_section(engine: Engine) -> str:
    """One engine: how it is provided, asked and set."""
    home, dialect = engine.home, engine.dialect
    lines = [f"\n## {engine.name}\n", f"{engine.summary}.\n"]
    if home is not None:
        package = home.packages("VERSION")[0] if home.packages else ""
        lines.append(f"- on the PATH: {f'`{home.program}`' if home.program else 'never'}")
        if package:
            lines.append(f"- from its version alone: `provide: {{pip: [{package}]}}`")
        if home.image:
            image = home.image.replace("{version}", "VERSION")
            lines.append(f"- in a container: `provide: {{image: {image}}}`")
        lines.append(f"- model formats: {', '.join(engine.formats)}")
    ids = f"token ids, from its `{dialect.tokenizer.path}`" if dialect.tokenizer else "text"
    lines.append(f"- prompts are sent as {ids}; ready when `{engine.probes.ready}` answers 200")
    lines.append(f"- added to each request: `{dict(dialect.extra)}`")
    if engine.knobs:
        lines += ["", "| setting | for example | becomes | note |", "|---|---|---|---|"]
        lines += [knob_row(engine, one.setting) for one in spellings(engine)]
    if engine.cannot:
        lines += ["", "| cannot be set | because |", "|---|---|"]
        lines += [f"| `{name}` | {why} |" for name, why in engine.cannot.items()]
    lines += [failure(known) for known in engine.known]
    return "\n".join(lines)


def failure(known: Known) -> str:
    """An option that is known to fail, as a sentence."""
    return (
        f"\n`{known.option}` is known to fail in {', '.join(known.versions)}: `{known.error}`; "
        f"{known.cause}. Remedy: {known.remedy}. Seen with {known.source}."
    )


def facts() -> str:
    """The facts that each adapter reads from its engine's log."""
    parts = [f"{NOTE}# Facts\n", FACTS_INTRO]
    for name in engines.names():
        module = importlib.import_module(f"kvroom.engines.{name}")
        reader = getattr(module, "_read", None) or getattr(module, "read_log", None)
        if isinstance(reader, LogReader):
            parts.append(f"\n## {name}\n\n{', '.join(f'`{fact}`' for fact in fact_names(reader))}")
    return "\n".join(parts) + "\n"


FACTS_INTRO = """\
What `kvroom explain --facts LOG` finds, by engine. Sizes are in bytes, names that end in `_s` in
seconds; of a fact that is said more than once the last counts, since engines size themselves twice.
Every fact carries file and line.
"""


def fact_names(reader: LogReader) -> list[str]:
    """Without those that only sum up to others."""
    groups = (group for _, pattern in reader.patterns for group in pattern.groupindex)
    names = {group.partition("__")[0] for group in groups if not group.startswith("_")}
    return sorted(names)


def knob_row(engine: Engine, name: str) -> str:
    """A setting and what it turns into."""
    value = SAMPLES[name][0]
    made = engine.knobs[name](value, Settings(**{name: value}))
    parts = [shlex.join(made.arguments)] if made.arguments else []
    parts += [f"{key}: {msgspec.json.encode(v).decode()}" for key, v in flat(made.config).items()]
    parts += [f"{variable}={v}" for variable, v in made.env.items()]
    added = ", ".join(f"`{part}`" for part in parts) or "-"
    note = (engine.knobs[name].__doc__ or "").replace("``", "`")
    return f"| `{name}` | `{msgspec.json.encode(value).decode()}` | {added} | {note} |"


if __name__ == "__main__":
    main()
