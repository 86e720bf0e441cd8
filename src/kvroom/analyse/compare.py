"""Who is ahead at a level, if anybody is."""

from collections.abc import Sequence

import msgspec

from kvroom.analyse.contender import Measured
from kvroom.analyse.noise import Noise, noise


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """The contenders that may be compared at a level, best first, and those like the best."""

    concurrency: int
    order: list[str]
    throughput: list[float]
    """Mean over the rounds, tokens/s, in that order."""
    alike: list[str]
    """Contenders from which the best is not told apart; the best itself is not in the list."""

    @property
    def best(self) -> str | None:
        """The one contender that is ahead of all others."""
        return self.order[0] if len(self.order) > 1 and not self.alike else None


def rank(contenders: Sequence[Measured], concurrency: int, floor: Noise) -> Ranked:
    """The ranking at a level. Cells with failures or a void client are left out."""
    spreads = {
        one.contender.name: level.output_throughput_rounds
        for one in contenders
        if one.rankable(concurrency) and (level := one.level(concurrency))
    }
    known = {name: spread for name, spread in spreads.items() if spread is not None}
    order = sorted(known, key=lambda name: known[name].mean, reverse=True)
    return Ranked(
        concurrency=concurrency,
        order=order,
        throughput=[known[name].mean for name in order],
        alike=[name for name in order[1:] if not floor.apart(known[order[0]], known[name])],
    )


def verdict(contenders: Sequence[Measured], levels: Sequence[int]) -> str:
    """Who wins for many requests, who for few, and what settings alone change."""
    floor = noise(contenders)
    ranked = [rank(contenders, level, floor) for level in levels]
    comparable = [r for r in ranked if len(r.order) > 1]
    if not comparable:
        return "No two contenders can be compared."
    many, few = comparable[-1], comparable[0]
    sentences = [_sentence(many, floor)]
    if few is not many:
        sentences.append(_sentence(few, floor))
    sentences += _settings_alone(contenders, many, floor)
    return " ".join(sentences)


def _sentence(ranked: Ranked, floor: Noise) -> str:
    best, second = ranked.throughput[:2]
    if ranked.alike:
        names = _listed([ranked.order[0], *ranked.alike])
        limit = f"noise limit {floor.limit:.0%}"
        return f"{_at(ranked)}, no difference is shown between {names} ({limit})."
    return (
        f"{_at(ranked)}, {ranked.order[0]} is fastest: {best:.0f} tok/s, {best / second:.2f} times "
        f"{ranked.order[1]} ({second:.0f})."
    )


def _at(ranked: Ranked) -> str:
    count = ranked.concurrency
    return f"At {count} concurrent request{'s' if count > 1 else ''}"


def _settings_alone(contenders: Sequence[Measured], ranked: Ranked, floor: Noise) -> list[str]:
    """For engines that compete with themselves: how far apart their settings lie."""
    speed = dict(zip(ranked.order, ranked.throughput, strict=True))
    engines: dict[str, list[str]] = {}
    for one in contenders:
        if one.contender.name in speed:
            engines.setdefault(one.contender.engine, []).append(one.contender.name)
    said = []
    for engine, names in engines.items():
        top, low = max(names, key=speed.__getitem__), min(names, key=speed.__getitem__)
        if len(names) > 1 and speed[top] > (1 + floor.limit) * speed[low]:
            said.append(f"{engine} by {speed[top] / speed[low]:.2f} times ({top} over {low})")
    return [f"{_at(ranked)}, settings alone change {_listed(said)}."] if said else []


def _listed(names: Sequence[str]) -> str:
    return " and ".join((", ".join(names[:-1]), names[-1])) if len(names) > 1 else names[0]
