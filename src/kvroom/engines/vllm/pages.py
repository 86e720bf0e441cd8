"""vLLM's pages: which cache each layer keeps, how layers are grouped, what a block id costs.

All groups draw block ids from one pool, and each id is as wide as the widest group, so a group of
narrow layers wastes what it does not use. Rules: vLLM 0.31.0, v1/core/kv_cache_utils.py
(get_kv_cache_groups, unify_kv_cache_spec_page_size) and v1/kv_cache_interface.py.
"""

from collections.abc import Iterable, Sequence
from typing import Literal

import msgspec

from kvroom.errors import InputError
from kvroom.room import ceil_div

Kind = Literal["full", "mla", "sliding", "chunked", "mamba"]


class Spec(msgspec.Struct, frozen=True, kw_only=True):
    """The cache of one layer."""

    kind: Kind
    block: int
    """Tokens in a page; for states only a label."""
    page: int
    """Bytes of a page."""
    layout: tuple[int, ...] = ()
    """Heads and sizes: layers share a group only if these are alike too."""
    window: int = 0
    states: int = 1
    """Pages of state a request may hold at its longest."""
    steady_states: int = 1
    """Pages of state it holds between two block boundaries."""

    def pages(self, tokens: int, in_flight: int) -> int:
        """The most pages a request of so many tokens takes in this layer's group."""
        if self.kind == "mamba":
            return self.states
        if self.kind == "sliding":
            return ceil_div(min(self.window - 1 + in_flight, tokens), self.block) + 1
        if self.kind == "chunked":
            return ceil_div(min(self.window + in_flight, tokens), self.block)
        return ceil_div(tokens, self.block)

    def uncapped(self, tokens: int) -> int:
        """Pages of a prompt if a window were to keep all of it."""
        return self.steady_states if self.kind == "mamba" else ceil_div(tokens, self.block)

    def held(self, tokens: int) -> int:
        """Pages a request holds after so many tokens, when nothing of it is in flight."""
        if self.kind == "mamba":
            return self.steady_states
        grown = ceil_div(tokens, self.block)
        if self.kind == "sliding":
            return min(grown, ceil_div(self.window - 1, self.block) + 1)
        if self.kind == "chunked":
            return min(grown, ceil_div(self.window, self.block))
        return grown


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How layers are grouped, as of 0.31; older releases did less."""

    widest: float = 1.5
    """The largest kind sets the size of a group if it is less than this times the smallest."""
    mixes_sizes: bool = True
    """Layers with heads of different sizes may share a group."""
    scales: bool = True
    """Small pages take more tokens until they are as large as the others."""
    pads: bool = True
    """Pages that do not divide the largest are padded."""
    grows: bool = True
    """Windows beside latent attention whose pages do not fit are kept like full caches."""


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """Layers that share a block table."""

    specs: tuple[Spec, ...]
    """One per layer."""

    @property
    def width(self) -> int:
        """Bytes of all pages behind one block id."""
        return sum(spec.page for spec in self.specs)

    def pages(self, tokens: int, in_flight: int) -> int:
        """Block ids a request takes here at most."""
        return max(spec.pages(tokens, in_flight) for spec in self.specs)

    def uncapped(self, tokens: int) -> int:
        """Block ids of a prompt if windows were to keep all of it."""
        return max(spec.uncapped(tokens) for spec in self.specs)

    def held(self, tokens: int) -> int:
        """Block ids a request holds here after so many tokens."""
        return max(spec.held(tokens) for spec in self.specs)


def grouped(specs: Sequence[Spec], rules: Rules | None = None) -> list[Group]:
    """The groups vLLM makes of the layers' caches; InputError where it cannot."""
    rules = rules or Rules()
    if not specs:
        return []
    if _same_type(specs) and (rules.mixes_sizes or len(set(specs)) == 1):
        return [Group(specs=tuple(specs))]
    unified = _unified(specs, rules)
    if unified is not None:
        return _split(unified, rules)
    if not rules.grows:
        raise InputError(UNEQUAL)
    return _all_grown(specs)


UNEQUAL = "vLLM cannot make the pages of this model equally large"


def _same_type(specs: Sequence[Spec]) -> bool:
    """Whether all layers need equally many tokens' room, so that one table serves them all."""
    first = specs[0]
    if len({spec.block for spec in specs}) > 1:
        return False
    if first.kind in ("full", "mla"):
        return all(spec.kind in ("full", "mla") for spec in specs)
    if first.kind == "mamba":
        return all(spec.kind == "mamba" and spec.page == first.page for spec in specs)
    return all(spec.kind == first.kind and spec.window == first.window for spec in specs)


def _unified(specs: Sequence[Spec], rules: Rules) -> list[Spec] | None:
    """All pages made equally large: more tokens in a small page, or padding behind it.

    None where an MLA page does not divide the largest, since MLA reads whole rows.
    """
    largest = max(spec.page for spec in specs)
    if any(spec.kind == "mla" and largest % spec.page for spec in specs):
        return None
    small = {spec.page for spec in specs} - {largest}
    if (small and not rules.scales) or (not rules.pads and any(largest % page for page in small)):
        raise InputError(UNEQUAL, "a newer vLLM pads them")
    return [_widened(spec, largest) for spec in specs]


def _all_grown(specs: Sequence[Spec]) -> list[Group]:
    """MLA beside sliding windows whose pages do not fit: the windows are kept like full caches."""
    kinds = {spec.kind for spec in specs}
    blocks = {spec.block for spec in specs if spec.kind in ("full", "mla")}
    block = blocks.pop() if len(blocks) == 1 else 0
    grown = [_as_full(spec, block) if spec.kind == "sliding" else spec for spec in specs]
    if "sliding" not in kinds or "chunked" in kinds or not _same_type(grown):
        raise InputError(UNEQUAL)
    return [Group(specs=tuple(grown))]


def _as_full(spec: Spec, block: int) -> Spec:
    block = block or spec.block
    page = spec.page * block // spec.block
    return msgspec.structs.replace(spec, kind="full", block=block, page=page)


def _widened(spec: Spec, page: int) -> Spec:
    if spec.page == page:
        return spec
    if spec.kind != "mamba" and page % spec.page == 0:
        ratio = page // spec.page
        return msgspec.structs.replace(spec, page=page, block=spec.block * ratio)
    return msgspec.structs.replace(spec, page=page)


def _split(specs: Iterable[Spec], rules: Rules) -> list[Group]:
    """Each kind of layer in groups of one size; what is left over is padded.

    The size is the smallest kind's number of layers, or the largest's if that is not much more.
    """
    buckets: dict[Spec, list[Spec]] = {}
    for spec in specs:
        buckets.setdefault(spec, []).append(spec)
    counts = [len(bucket) for bucket in buckets.values()]
    size = max(counts) if max(counts) < rules.widest * min(counts) else min(counts)
    groups = []
    for bucket in buckets.values():
        number = ceil_div(len(bucket), size)
        groups += [Group(specs=tuple(bucket[i::number])) for i in range(number)]
    return groups


class Pool(msgspec.Struct, frozen=True, kw_only=True):
    """The groups and the block ids that so many bytes make."""

    groups: tuple[Group, ...]
    blocks: int
    in_flight: int

    @property
    def width(self) -> int:
        """Bytes behind one block id."""
        return max(group.width for group in self.groups)

    def pages(self, tokens: int) -> int:
        """Block ids of one request at most, as the start-up check and the log count them."""
        return sum(group.pages(tokens, self.in_flight) for group in self.groups)

    def held(self, tokens: int) -> int:
        """Block ids one request holds after so many tokens."""
        return sum(group.held(tokens) for group in self.groups)

    def uncapped(self, tokens: int) -> int:
        """Block ids of a whole prompt in every group, windows counted like full caches."""
        return sum(group.uncapped(tokens) for group in self.groups)

    def concurrency(self, tokens: int) -> float:
        """Requests of so many tokens that fit; the null block counts here, as vLLM has it."""
        return self.blocks / self.pages(tokens)

    def longest(self, limit: int, reserve: int) -> int:
        """The longest request, up to a limit, for which the blocks less a reserve suffice."""
        low, high, best = 1, limit, 0
        while low <= high:
            middle = (low + high) // 2
            if self.pages(middle) <= self.blocks - reserve:
                best, low = middle, middle + 1
            else:
                high = middle - 1
        return best


def pool(specs: Sequence[Spec], available: int, in_flight: int, rules: Rules | None = None) -> Pool:
    """The pool that so many bytes make."""
    groups = tuple(grouped(specs, rules))
    width = max(group.width for group in groups)
    return Pool(groups=groups, blocks=available // width, in_flight=in_flight)
