"""Bad input: one clear sentence with file, line and key, a hint, exit code 2, nothing started."""

import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from conftest import MATCHUP, Kvroom

GOOD = MATCHUP.replace("%s", "/bin/true")


def broken(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new, 1)


CASES = {
    "a misspelt key at the top": (
        broken("workload:", "worklaod:"),
        "m.yaml:3: unknown key 'worklaod'",
        "did you mean 'workload'?",
    ),
    "a misspelt key in the workload": (
        broken("rounds: 2", "round: 2"),
        "m.yaml:3: unknown key 'round' in workload",
        "did you mean 'rounds'?",
    ),
    "a misspelt setting of the second contender": (
        broken("slots: 8", "slot: 8"),
        "m.yaml:6: unknown key 'slot' in contenders[1].settings",
        "did you mean 'slots'?",
    ),
    "a key of nothing like": (
        broken("rounds: 2", "zzz: 2"),
        "m.yaml:3: unknown key 'zzz' in workload",
        "known keys: prompt_tokens",
    ),
    "a word for a number": (
        broken("prompt_tokens: 32", "prompt_tokens: many"),
        "m.yaml:3: workload.prompt_tokens: expected 'int', got 'str'",
        "",
    ),
    "a number below one": (
        broken("output_tokens: 8", "output_tokens: 0"),
        "m.yaml:3: workload.output_tokens: expected 'int' >= 1",
        "",
    ),
    "no levels": (
        broken("concurrency: [1, 4]", "concurrency: []"),
        "m.yaml:3: workload.concurrency: expected 'array' of length >= 1",
        "",
    ),
    "a level twice": (
        broken("[1, 4]", "[1, 1]"),
        "m.yaml:3: workload: a level of 'concurrency' is given twice",
        "",
    ),
    "a level without rounds": (
        broken("rounds: 2", "rounds: {1: 2}"),
        "m.yaml:3: workload: 'rounds' names no number for level 4",
        "",
    ),
    "a key given twice": (
        broken("name: probe", "name: probe\nname: again"),
        "m.yaml:2: the key 'name' is given twice",
        "",
    ),
    "a missing engine": (
        broken("engine: llamacpp, ", ""),
        "m.yaml:5: contenders[0]: object missing required field 'engine'",
        "",
    ),
    "an unknown engine": (
        broken("engine: llamacpp", "engine: lamacpp"),
        "m.yaml: a: unknown engine 'lamacpp'",
        "did you mean 'llamacpp'?",
    ),
    "a setting the engine has not": (
        broken("slots: 4", "state_dtype: float32"),
        "m.yaml: a: llamacpp has no setting 'state_dtype': recurrent states are always float32",
        "it knows batch_tokens, cuda_graphs, kv_cache_dtype",
    ),
    "a size without a unit": (
        broken("slots: 4", "kv_memory: 20M"),
        "m.yaml:5: contenders[0].settings.kv_memory: '20M' is not a size",
        "",
    ),
    "requests longer than allowed": (
        broken("max_len: 64", "max_len: 39"),
        "m.yaml: a: max_len 39 is shorter than one request (40 tokens, prompt and output)",
        "raise max_len or shorten the workload",
    ),
    "two contenders of one name": (
        broken("{name: b", "{name: A"),
        "m.yaml:1: two contenders are called 'a'",
        "",
    ),
    "a name that leaves the folder": (
        broken("{name: b", "{name: ../b"),
        "m.yaml:6: contenders[1]: the contender name '../b' names a folder too",
        "",
    ),
    "a missing model": (
        GOOD,
        "m.yaml: a: the model",
        "relative paths start at the matchup's folder",
    ),
    "a program that is not there": (
        broken("/bin/true", "no-such-llama"),
        "m.yaml: a: the program 'no-such-llama' is not on the PATH",
        "provide: {pip: [...]}",
    ),
    "an environment that is none": (
        broken('path: "/bin/true"', "env: /nowhere"),
        "m.yaml: a: /nowhere is not a Python environment",
        "",
    ),
    "two ways to provide": (
        broken('path: "/bin/true"', 'path: "/bin/true", env: x'),
        "m.yaml:5: contenders[0].provide: 'provide' needs exactly one of",
        "",
    ),
    "an endpoint without an address": (
        broken('engine: llamacpp, provide: {path: "/bin/true"}', "engine: openai"),
        "m.yaml: a: openai is not started by kvroom",
        "give its address under url:",
    ),
    "an address that is none": (
        broken('provide: {path: "/bin/true"}, settings: {slots: 4, max_len: 64}', "url: nowhere"),
        "m.yaml: a: 'nowhere' is not the address of a server",
        "",
    ),
    "a key variable that is not set": (
        broken(
            'provide: {path: "/bin/true"}, settings: {slots: 4, max_len: 64}',
            "url: http://127.0.0.1:9, api_key_env: NO_SUCH_KEY",
        ),
        "m.yaml: a: the environment variable NO_SUCH_KEY is not set",
        "",
    ),
    "a key among the flags": (
        broken("slots: 4, max_len: 64}", "slots: 4, max_len: 64}, flags: [--api-key, s3cret]"),
        "m.yaml: a: a key in 'flags' or 'env' would be kept with the run",
        "export it in the environment of kvroom",
    ),
    "a key among the variables": (
        broken("slots: 4, max_len: 64}", "slots: 4, max_len: 64}, env: {HF_TOKEN: s3cret}"),
        "m.yaml: a: a key in 'flags' or 'env' would be kept with the run",
        "export it in the environment of kvroom",
    ),
    "a login in an address": (
        broken(
            'provide: {path: "/bin/true"}, settings: {slots: 4, max_len: 64}',
            "url: http://me:s3cret@127.0.0.1:9",
        ),
        "m.yaml: a: a login in 'url' would be kept with the run",
        "api_key_env",
    ),
    "a switch that YAML reads as true": (
        broken("slots: 4, max_len: 64}", "slots: 4, max_len: 64}, flags: [-fa, on]"),
        "m.yaml:5: contenders[0].flags[1]: expected 'int | float | str', got 'bool'",
        "",
    ),
    "not YAML": ("name: [", "m.yaml:1: not valid YAML", ""),
    "an empty file": ("", "m.yaml: the file is empty", ""),
    "a list": ("- 1", "m.yaml:1: expected 'object', got 'array'", ""),
    "an alias bomb": (
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(
            f"{new}: &{new} [{', '.join([f'*{old}'] * 10)}]\n"
            for old, new in zip("abcdefgh", "bcdefghi", strict=True)
        ),
        "m.yaml: more than 100000 values, not a matchup",
        "",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_a_bad_matchup_is_answered_with_its_place(
    case: str, kvroom: Kvroom, tmp_path: Path
) -> None:
    text, sentence, hint = CASES[case]
    (tmp_path / "m.yaml").write_text(text)
    if case != "a missing model":
        (tmp_path / "model.gguf").write_bytes(b"GGUF")

    done = kvroom("run", "m.yaml")

    assert done.returncode == 2, done.stderr
    assert f"error: {sentence}" in done.stderr
    assert hint in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists(), "something was started"


def test_a_port_in_use_is_named_with_its_holder(
    write_matchup: Callable[..., Path], kvroom: Kvroom
) -> None:
    path = write_matchup({"a": "well"})
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        port = holder.getsockname()[1]
        path.write_text(
            path.read_text().replace("engine: llamacpp", f"engine: llamacpp, port: {port}")
        )

        done = kvroom("run", path)

    assert done.returncode == 2
    assert f"error: {path}: a: port {port} is in use by " in done.stderr
    assert "leave it out and a free one is taken" in done.stderr


def test_an_unreachable_endpoint_fails_alone(kvroom: Kvroom, tmp_path: Path) -> None:
    (tmp_path / "m.yaml").write_text(
        "name: far\n"
        "workload: {prompt_tokens: 16, output_tokens: 8, concurrency: [1]}\n"
        "contenders: [{name: away, engine: openai, url: 'http://127.0.0.1:9'}]\n"
    )

    done = kvroom("run", "m.yaml", "-o", "r")

    assert done.returncode == 3
    assert "away: failed: http://127.0.0.1:9 does not answer" in done.stderr
    assert "is the server running, and is the address right?" in done.stdout


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["run"], "name one of: a matchup file, --resume RUN, --apply RUN"),
        (
            ["run", "x.yaml", "--resume", "r"],
            "name one of: a matchup file, --resume RUN, --apply RUN",
        ),
        (["run", "nowhere.yaml"], "nowhere.yaml: no such file or directory"),
        (["run", "--resume", "nowhere"], "nowhere is not a run: it has no run.json"),
        (["report", "nowhere"], "nowhere is not a run: it has no run.json"),
    ],
)
def test_bad_commands(words: list[str], sentence: str, kvroom: Kvroom) -> None:
    done = kvroom(*words)

    assert done.returncode == 2
    assert f"error: {sentence}" in done.stderr


def test_a_run_of_a_later_format_is_refused(kvroom: Kvroom, tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    (tmp_path / "r" / "run.json").write_text(
        '{"format": 99, "kvroom": "9", "name": "x", "created": "", "matchup_folder": "", '
        '"machine": {}}'
    )

    done = kvroom("report", "r")

    assert done.returncode == 2
    assert "r has format 99; this kvroom reads up to 1" in done.stderr
