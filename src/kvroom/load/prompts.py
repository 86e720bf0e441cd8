"""Prompts of exactly so many tokens, all different, the same for every contender.

Where an engine takes token ids, a prompt is a list of ids that its own tokenizer gave for common
words. Where it takes only text, a prompt is a row of words of which each is one token for that
server, found out by asking it. Either way the prompt of an ordinal is the same row of words.
"""

import hashlib
import random
from collections.abc import Callable, Sequence

import msgspec

from kvroom.errors import EngineError, InputError

HEAD = "Words:"
"""Every text prompt begins with this; shorter than any cache block, so nothing is reused."""

_COMMON = """
time year people way day man thing woman life child world school state family student group
country problem hand part place case week company system program question work government number
night point home water room mother area money story fact month lot right study book eye job word
business issue side kind head house service friend father power hour game line end member law car
city community name president team minute idea kid body information back parent face others level
office door health person art war history party result change morning reason research girl guy
moment air teacher force education foot boy age policy music market sense nation plan college
interest death experience effect use class control field development role effort rate heart drug
show leader light voice wife police mind price report decision son view relationship town road arm
difference value building action season society tax director position player record paper space
ground form event official matter center couple site project activity star table need court oil
situation cost industry figure street image phone data picture practice piece land product doctor
wall patient worker news test movie north love support technology step baby computer type
attention film tree source organization hair look window evidence truth song fire future call
board list station summer series language stage army trade method message park floor store glass
skin bank ball river color bed order
"""
WORDS = _COMMON.split()

_SMALLEST_POOL = 32
AT_ONCE = 64
"""Words asked about together: a server with a short context takes so many."""


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The words a server's prompts are made of: token ids, or texts of one token each."""

    ids: tuple[int, ...] = ()
    texts: tuple[str, ...] = ()
    head_tokens: int = 0
    """Tokens that ``HEAD`` and what the server adds by itself take, for texts."""

    def prompt(self, ordinal: int, tokens: int, seed: int) -> list[int] | str:
        """The prompt of an ordinal, exactly ``tokens`` long for this server."""
        if self.ids:
            return [self.ids[i] for i in _row(ordinal, tokens, seed, len(self.ids))]
        if tokens <= self.head_tokens:
            raise InputError(
                f"prompts of {tokens} tokens are too short for a server that takes only text "
                f"(it needs more than {self.head_tokens})",
                "raise workload.prompt_tokens",
            )
        row = _row(ordinal, tokens - self.head_tokens, seed, len(self.texts))
        return " ".join((HEAD, *(self.texts[i] for i in row)))


def _row(ordinal: int, length: int, seed: int, size: int) -> list[int]:
    """Indices into a pool: first the ordinal spelt out, so no two rows begin alike, then noise."""
    row = random.Random(f"{seed}:{ordinal}").choices(range(size), k=length)
    rest = ordinal
    for place in range(length):
        rest, row[place] = divmod(rest, size)
        if not rest:
            return row
    raise InputError(
        f"{length} tokens are too few to make {ordinal + 1} different prompts",
        "raise workload.prompt_tokens",
    )


def pool_of_ids(tokenize: Callable[[str], list[int]]) -> Pool:
    """A pool from a server's tokenizer, asked once for all words."""
    ids = tuple(dict.fromkeys(tokenize(" " + " ".join(WORDS))))
    if len(ids) < _SMALLEST_POOL:
        raise EngineError(f"the server's tokenizer knows only {len(ids)} of {len(WORDS)} words")
    return Pool(ids=ids)


def pool_of_texts(prompt_length: Callable[[str], int]) -> Pool:
    """A pool of words that are one token each, found by asking a server how long texts are."""

    def length(words: Sequence[str]) -> int:
        return prompt_length(" ".join((HEAD, *words)))

    head = _head_tokens(length)
    groups = (WORDS[at : at + AT_ONCE] for at in range(0, len(WORDS), AT_ONCE))
    texts = [word for group in groups for word in _single_tokens(group, head, length)]
    if len(texts) < _SMALLEST_POOL:
        raise EngineError(f"only {len(texts)} of {len(WORDS)} words are one token for this server")
    return Pool(texts=tuple(texts), head_tokens=head)


Length = Callable[[Sequence[str]], int]


def _head_tokens(length: Length) -> int:
    """What the head and the server itself add, by a word that proves to be one token."""
    for word in WORDS[:10]:
        one, three = length([word]), length([word] * 3)
        if three - one == 2:
            return one - 1
    raise EngineError("the server's token counts do not grow by one per word")


def _single_tokens(words: Sequence[str], head: int, length: Length) -> list[str]:
    """The words that are one token each: all of them, else those of each half."""
    if length(words) == head + len(words):
        return list(words)
    if len(words) == 1:
        return []
    half = len(words) // 2
    return _single_tokens(words[:half], head, length) + _single_tokens(words[half:], head, length)


def fingerprint(prompts: Sequence[list[int] | str]) -> str:
    """SHA-256 of a round's prompts in order; equal means the same load."""
    return hashlib.sha256(msgspec.json.encode(prompts)).hexdigest()
