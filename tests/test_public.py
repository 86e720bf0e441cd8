"""The door: what can be imported, how fast the command answers, what it says of itself."""

import subprocess
import sys

import pytest

import kvroom
from kvroom.analyse.contender import measured
from kvroom.cli import _exit_code
from kvroom.store import Ending, Run

from conftest import a_record, an_info  # isort: skip


@pytest.mark.parametrize("name", kvroom.__all__)
def test_every_public_name_is_there(name: str) -> None:
    assert getattr(kvroom, name).__doc__


def test_no_other_name_is() -> None:
    with pytest.raises(AttributeError, match="kvroom has no 'nonsense'"):
        _ = kvroom.nonsense


def test_help_pays_for_nothing_it_does_not_need() -> None:
    code = (
        "import sys; from kvroom.cli import main; main(['--help'], standalone_mode=False);"
        "print(sorted({'polars', 'numpy', 'httpx', 'rich', 'yaml', 'gguf'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines()[-1] == "[]"


def test_the_exit_code_says_whose_fault_it_was(a_run: Run) -> None:
    assert _exit_code(a_run) == 0

    late = [a_record(i, sent_ms=40, tokens_at_ms=(60, 70)) for i in range(4)]
    a_run.write_round("a", "c004-2", an_info(4, 2), late)
    assert measured(a_run)[0].voids
    assert _exit_code(a_run) == 4

    a_run.round_file("a", "c004-2").unlink()
    a_run.write_ending("a", Ending(state="failed", reason="gone"))
    assert _exit_code(a_run) == 3
