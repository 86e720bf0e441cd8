"""Prompts: exactly as long as asked, all different, the same for everybody."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvroom.errors import EngineError, InputError
from kvroom.load.prompts import HEAD, WORDS, Pool, fingerprint, pool_of_ids, pool_of_texts

IDS = Pool(ids=tuple(range(1000, 1200)))


@given(ordinal=st.integers(0, 1_000_000), tokens=st.integers(4, 300), seed=st.integers())
def test_a_prompt_has_exactly_the_length_asked_for(ordinal: int, tokens: int, seed: int) -> None:
    assert len(IDS.prompt(ordinal, tokens, seed)) == tokens


@given(
    st.lists(st.integers(0, 1_000_000), min_size=2, max_size=40, unique=True),
    st.integers(4, 64),
    st.integers(),
)
def test_no_two_prompts_share_more_than_three_tokens(
    ordinals: list[int], tokens: int, seed: int
) -> None:
    """Less than any engine's cache block, so nothing can be reused."""
    starts = [tuple(IDS.prompt(o, tokens, seed)[:4]) for o in ordinals]

    assert len(set(starts)) == len(ordinals)


def test_neighbours_differ_from_the_first_token_on() -> None:
    firsts = [IDS.prompt(ordinal, 32, 0)[0] for ordinal in range(len(IDS.ids))]

    assert len(set(firsts)) == len(IDS.ids)


def test_the_same_seed_gives_the_same_load_and_another_seed_another() -> None:
    first, again, other = (
        fingerprint([IDS.prompt(o, 32, seed) for o in range(8)]) for seed in (0, 0, 1)
    )

    assert first == again
    assert first != other


def test_too_short_prompts_for_so_many_requests_are_refused() -> None:
    assert IDS.prompt(199, 1, 0) == [1199]
    with pytest.raises(InputError, match="too few to make 201 different prompts"):
        IDS.prompt(200, 1, 0)


def test_ids_come_from_the_servers_own_tokenizer() -> None:
    asked: list[str] = []

    def tokenize(text: str) -> list[int]:
        asked.append(text)
        return [len(word) * 1000 + i % 90 for i, word in enumerate(text.split())]

    pool = pool_of_ids(tokenize)

    assert len(asked) == 1
    assert len(pool.ids) == len(set(pool.ids))


def test_a_tokenizer_that_knows_hardly_any_word_is_refused() -> None:
    with pytest.raises(EngineError, match="knows only 1 of"):
        pool_of_ids(lambda text: [0] * 500)


@given(
    overhead=st.integers(0, 20),
    split=st.sets(st.sampled_from(WORDS), max_size=len(WORDS) - 40),
    tokens=st.integers(30, 80),
    ordinal=st.integers(0, 10_000),
)
def test_texts_have_the_length_the_server_counts(
    overhead: int, split: set[str], tokens: int, ordinal: int
) -> None:
    """A server that adds tokens of its own and splits some words in two."""

    def count(text: str) -> int:
        return overhead + 2 + sum(2 if word in split else 1 for word in text.split()[1:])

    if split.issuperset(WORDS[:10]):
        with pytest.raises(EngineError, match="do not grow by one per word"):
            pool_of_texts(count)
        return
    pool = pool_of_texts(count)

    text = pool.prompt(ordinal, tokens, 0)
    assert isinstance(text, str)
    assert text.startswith(HEAD)
    assert count(text) == tokens


def test_finding_the_words_takes_few_questions() -> None:
    asked = 0

    def count(text: str) -> int:
        nonlocal asked
        asked += 1
        return 1 + sum(2 if word == "government" else 1 for word in text.split())

    pool_of_texts(count)

    assert asked < 25


def test_text_prompts_shorter_than_the_overhead_are_refused() -> None:
    pool = Pool(texts=tuple(WORDS), head_tokens=5)

    with pytest.raises(InputError, match="too short for a server that takes only text"):
        pool.prompt(0, 5, 0)
