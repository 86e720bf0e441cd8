"""The contract of an adapter: every file dropped into ``engines/`` is held to it."""

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from kvroom import engines
from kvroom.catalogue import catalogue, complaints
from kvroom.dialect import chat
from kvroom.engine import Engine, Place
from kvroom.errors import InputError
from kvroom.log_reader import LogReader
from kvroom.matchup import load_matchup
from kvroom.options import Options
from kvroom.prepare import prepare
from kvroom.settings import Settings, Speculative
from kvroom.spelling import SAMPLES, read_back, spellings
from rooms import an_ask, dense

ADAPTERS = [engines.engine(name) for name in engines.names()]
STARTED = [engine for engine in ADAPTERS if engine.home]
PLACE = Place(
    model="/models/m",
    served_model="model",
    host="127.0.0.1",
    port=28_000,
    config="/run/config.yaml",
    files="/run",
)
NOTHING = Options()
IMPURE = {"os", "sys", "subprocess", "socket", "time", "random", "threading", "httpx", "pathlib"}
CANNOT_FORCE_LENGTH = {"ollama"}
SHARED = {"sglang": {"batch_tokens"}}
"""SGLang switches chunks off by their size."""


def by_name(engine: Engine) -> str:
    return engine.name


every = pytest.mark.parametrize("engine", ADAPTERS, ids=by_name)
started = pytest.mark.parametrize("engine", STARTED, ids=by_name)


def options_of(engine: Engine, **settings: Any) -> Options:
    return engine.options(PLACE, Settings(**settings), NOTHING)


@every
def test_it_is_called_what_its_file_is_called(engine: Engine) -> None:
    assert engines.engine(engine.name) is engine
    assert engine.summary


@every
def test_it_is_pure(engine: Engine) -> None:
    folder = Path(engines.__file__).parent
    files = [*(folder / engine.name).rglob("*.py"), *folder.glob(f"{engine.name}.py")]
    for file in files:
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = [a.name for a in node.names] if isinstance(node, ast.Import) else []
                names.append(getattr(node, "module", "") or "")
                assert not {n.partition(".")[0] for n in names} & IMPURE, file
            if isinstance(node, ast.Name):
                assert node.id != "open", file


@started
def test_every_setting_is_translated_or_refused_with_a_reason(engine: Engine) -> None:
    assert engine.knobs.keys() | engine.cannot.keys() == set(Settings.__struct_fields__)
    assert not engine.knobs.keys() & engine.cannot.keys()
    for setting, why in engine.cannot.items():
        with pytest.raises(InputError, match="has no setting") as refused:
            options_of(engine, **{setting: SAMPLES[setting][0]})
        assert why in str(refused.value)


def test_the_samples_cover_all_settings() -> None:
    assert SAMPLES.keys() == set(Settings.__struct_fields__)


@started
@pytest.mark.parametrize("setting", SAMPLES)
def test_a_setting_goes_into_the_engines_words_and_back(engine: Engine, setting: str) -> None:
    for value in SAMPLES[setting] if setting in engine.knobs else ():
        told = read_back(engine, options_of(engine, **{setting: value}))

        assert str(told.get(setting, value)) == str(value)
        assert told.keys() - {setting} <= SHARED.get(engine.name, set())


@started
def test_most_settings_can_be_read_back(engine: Engine) -> None:
    every_setting = {name: SAMPLES[name][0] for name in engine.knobs}

    told = read_back(engine, options_of(engine, **every_setting))

    assert len(told) >= len(engine.knobs) / 2


@started
def test_settings_become_options_that_the_newest_version_knows(engine: Engine) -> None:
    if catalogue(engine.name) is None:
        pytest.skip("no list of its options")
    for setting in engine.knobs:
        for value in SAMPLES[setting]:
            made = options_of(engine, **{setting: value})
            unknown = [c.what for c in complaints(engine, None, made) if "no option" in c.what]
            assert unknown == [], setting


@started
def test_verbatim_options_come_last_and_win(engine: Engine) -> None:
    settings = Settings(**{name: SAMPLES[name][0] for name in engine.knobs})
    mine = Options(arguments=("--mine", "1"), env=dict.fromkeys(engine.env, "mine"))

    made = engine.options(PLACE, settings, mine)

    assert made.arguments[-2:] == ("--mine", "1")
    assert all(made.env[name] == "mine" for name in engine.env)


@started
def test_verbatim_keys_win_over_settings(engine: Engine) -> None:
    mine = Options(config={"deep": {"mine": 1}})
    assert engine.home is not None
    if not engine.home.config_option:
        with pytest.raises(InputError, match="has no config file"):
            engine.options(PLACE, Settings(), mine)
        return
    made = engine.options(PLACE, Settings(slots=8), mine)

    assert made.config["deep"] == {"mine": 1}
    assert PLACE.config in made.arguments


@started
def test_it_is_bound_to_the_place_it_is_given(engine: Engine) -> None:
    made = options_of(engine)
    assert engine.home is not None
    words = " ".join([*made.arguments, *made.env.values(), *made.files.values()])
    setup = " ".join(word for words in engine.home.setup(PLACE) for word in words)

    for needed in (PLACE.model, PLACE.host, str(PLACE.port)):
        assert needed in words
    assert PLACE.served_model in words + setup or not engine.home.names_model
    assert engine.formats
    assert engine.ready_line


@every
def test_requests_are_greedy_streamed_and_of_the_length_that_is_asked(engine: Engine) -> None:
    body = engine.dialect.request("model", "some words", 8)
    text = json.dumps(body)

    assert json.loads(text) == body
    assert body["model"] == "model"
    assert '"temperature": 0' in text
    assert body["stream"] is True
    assert ": 8" in text
    assert engine.dialect.forces_length(body) is (engine.name not in CANNOT_FORCE_LENGTH)


@every
def test_chats_ask_the_same(engine: Engine) -> None:
    dialect = engine.dialect.chatting()
    body = dialect.request("model", "some words", 8)

    assert dialect.path == "/v1/chat/completions"
    assert body["messages"] == [{"role": "user", "content": "some words"}]
    assert "prompt" not in body
    assert body.items() >= chat("model", "some words", 8).items()


@every
def test_a_plan_expects_facts_that_the_log_reader_knows(engine: Engine) -> None:
    if engine.room is None:
        pytest.skip("its allocator is not known")
    room = engine.room(an_ask(dense(32, 8, 128), available=40 << 30))
    known = fact_names(engine)

    assert room.expected
    assert {expected.fact for expected in room.expected if expected.fact} <= known


def fact_names(engine: Engine) -> set[str]:
    """What its reader may find, sums of parts included."""
    import importlib

    module = importlib.import_module(f"kvroom.engines.{engine.name}")
    reader = getattr(module, "_read", None) or engine.read_log
    assert isinstance(reader, LogReader)
    groups = [group for _, pattern in reader.patterns for group in pattern.groupindex]
    return {group.partition("__")[0] for group in groups} | {"kv_tokens", "kv_bytes"}


@every
def test_phases_have_names_of_their_own(engine: Engine) -> None:
    names = [name for name, _ in engine.phases]

    assert len(names) == len(set(names))
    assert not engine.phases or engine.ready_line


@every
def test_what_is_known_to_fail_says_where_it_was_seen(engine: Engine) -> None:
    for known in engine.known:
        assert all((known.versions, known.error, known.cause, known.remedy, known.source))


@started
def test_speculation_names_who_guesses_and_how_much(engine: Engine) -> None:
    if "speculative" not in engine.knobs:
        pytest.skip("it cannot")
    for method, model in (("mtp", None), ("ngram", None), ("draft", "/models/small")):
        guess = Speculative(tokens=3, method=method, model=model)  # type: ignore[arg-type]
        made = options_of(engine, speculative=guess)
        text = f"{made.arguments} {made.config}"
        assert "3" in text
        assert model is None or model in text


def test_every_engine_that_is_started_lists_its_settings() -> None:
    assert all(spellings(engine) for engine in STARTED)


def test_the_founding_matchup_becomes_the_settings_it_was_measured_with(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The two configurations of the published comparison, to the key."""
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    path = Path(__file__).parent.parent / "examples" / "rtx5090-hybrid" / "matchup.yaml"
    found = {p.contender.name: p for p in prepare(load_matchup(path), path, path.parent)}

    trtllm = found["trtllm-fp8"].options(PLACE)
    assert trtllm.config == {
        "max_batch_size": 32,
        "max_num_tokens": 8192,
        "max_seq_len": 4096,
        "trust_remote_code": True,
        "kv_cache_config": {
            "free_gpu_memory_fraction": 0.85,
            "enable_block_reuse": False,
            "dtype": "fp8",
        },
        "cuda_graph_config": {"enable_padding": True, "max_batch_size": 32},
    }
    vllm = found["vllm-bf16"].options(PLACE).arguments
    assert set(vllm[vllm.index("28000") + 1 :]) == {
        *("--language-model-only", "--max-model-len", "4096", "--max-num-seqs", "32"),
        *("--gpu-memory-utilization", "0.92"),
    }
    assert [p.complaints for p in found.values()] == [()] * 4
