"""The score over labelled cases: right, wrong and unknown are told apart."""

import subprocess
import sys
from pathlib import Path

import yaml

SCORE = Path(__file__).parent.parent / "bench" / "score.py"
COMPILES = {
    "id": "a",
    "engine": "vllm",
    "workload": "cold start",
    "log_lines": ["INFO [monitor.py:34] torch.compile takes 2222.52 s in total"],
}
NOTHING = {"id": "b", "engine": "vllm", "workload": "?", "log_lines": ["INFO nothing"]}
COLD = {"cause": "jit-compile/cold-start", "facts": {"compile_seconds": 2222.52}}


def score(folder: Path, *cases: dict[str, object]) -> "subprocess.CompletedProcess[str]":
    for case in cases:
        place = folder / str(case["id"])
        place.mkdir()
        (place / "case.yaml").write_text(yaml.safe_dump(case))
    return subprocess.run(
        [sys.executable, str(SCORE), str(folder)], capture_output=True, text=True, check=False
    )


def test_a_right_cause_and_its_number(tmp_path: Path) -> None:
    done = score(tmp_path, COMPILES | {"expected": COLD})

    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 (100%)" in done.stdout
    assert "Numbers: 1 right, 0 wrong" in done.stdout


def test_a_cause_that_is_claimed_and_not_so_is_wrong(tmp_path: Path) -> None:
    expected = {"cause": "kv-exhausted", "facts": {"compile_seconds": 5}}
    done = score(tmp_path, COMPILES | {"expected": expected})

    assert done.returncode == 1
    assert "1 findings were wrong" in done.stdout
    assert "0 right, 1 wrong" in done.stdout


def test_what_is_not_known_is_neither(tmp_path: Path) -> None:
    done = score(tmp_path, NOTHING | {"expected": COLD})

    assert done.returncode == 1
    assert "0 findings were wrong" in done.stdout
    assert "not enough evidence in 1" in done.stdout


def test_an_empty_folder_is_said_to_be_one(tmp_path: Path) -> None:
    assert "no */case.yaml in it" in score(tmp_path).stderr
