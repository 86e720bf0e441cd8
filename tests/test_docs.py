"""Documentation is held to the code: links lead somewhere, nothing is left out, commands exist."""

import re
from pathlib import Path

import pytest

from conftest import Kvroom
from kvroom import cli, engines
from kvroom.records import RequestRecord
from kvroom.settings import Settings

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(#[^)\s]*)?\)")


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text()):
        if target.startswith(("http://", "https://")):
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), f"{name_of(page)} links to {target}"
        if anchor and file.suffix == ".md":
            assert anchor[1:] in anchors(file), f"{name_of(page)} links to {target}{anchor}"


def anchors(page: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()).strip() for heading in headings)
    return {heading.replace(" ", "-") for heading in plain}


def test_every_page_can_be_reached_from_the_index() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target, _ in LINK.findall(page.read_text())
        if target and "://" not in target
    }

    assert [name_of(p) for p in PAGES[1:] if p.resolve() not in linked] == []


def test_the_map_names_every_module() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text()
    package = ROOT / "src" / "kvroom"
    modules = [p.stem for p in package.glob("*.py") if not p.stem.startswith("__")]
    folders = [p.name for p in package.iterdir() if (p / "__init__.py").exists()]
    told = (
        "load",
        "analyse",
        "report",
        "provide",
        "checkpoint",
        "plan",
        "explain",
        "explain/rules",
    )
    inner = [p.stem for folder in told for p in (package / folder).glob("*.py")]

    for name in [*modules, *folders, *inner]:
        assert name.startswith("__") or name in text, f"architecture.md does not know {name}"


def test_every_command_setting_engine_and_column_has_its_place() -> None:
    commands = (ROOT / "docs/reference/commands.md").read_text()
    matchup = (ROOT / "docs/reference/matchup.md").read_text()
    engine_page = (ROOT / "docs/reference/engines.md").read_text()
    columns = (ROOT / "docs/reference/run-folder.md").read_text()

    assert all(f"## kvroom {name}" in commands for name in cli.main.commands)
    assert all(f"`{name}`" in matchup for name in Settings.__struct_fields__)
    assert all(f"## {name}" in engine_page for name in engines.names())
    assert all(f"`{name}`" in columns for name in RequestRecord.__struct_fields__)


@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*.yaml")), ids=name_of)
def test_every_example_says_what_it_would_start(example: Path, kvroom: Kvroom) -> None:
    done = kvroom("run", example, "--dry-run")

    assert done.returncode == 0, done.stderr
    assert "in an environment with" in done.stdout
    assert "PORT" in done.stdout


def test_the_readme_and_the_guide_show_commands_that_exist(kvroom: Kvroom) -> None:
    for page in (ROOT / "README.md", ROOT / "docs" / "guide.md"):
        for command in re.findall(
            r"^\$ (?:\.venv/bin/)?kvroom (\w+)", page.read_text(), re.MULTILINE
        ):
            assert kvroom(command, "--help").returncode == 0, command


def test_make_targets_named_in_the_docs_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    for page in PAGES:
        for target in re.findall(
            r"`make ([\w-]+)`|^\$ make ([\w-]+)", page.read_text(), re.MULTILINE
        ):
            assert re.search(rf"^{''.join(target)}:", makefile, re.MULTILINE), target
