"""What a request takes of the pool, and how much of it is state."""

import msgspec

from kvroom.explain.case import Case
from kvroom.explain.finding import Figure
from kvroom.room import ceil_div


class Shares(msgspec.Struct, frozen=True, kw_only=True):
    """The pages of one request, by the plan."""

    state_pages: int = 0
    figures: tuple[Figure, ...] = ()


def shares(case: Case) -> Shares:
    """The plan's figures for the case's load, nothing where there is no plan."""
    if case.plan is None:
        return Shares()
    room, fit = case.plan.room, case.fit
    arithmetic = room.arithmetic[-1] if room.arithmetic else ""
    found = [
        _figure("kv_block_tokens", room.block_tokens, "tokens"),
        _figure("kv_blocks", room.blocks, "blocks", arithmetic),
        _figure("kv_tokens", room.tokens, "tokens"),
        _figure("bytes_per_token", room.bytes_per_token, "bytes"),
    ]
    if room.max_concurrency is not None:
        found.append(_figure("max_concurrency", round(room.max_concurrency, 2)))
    if room.fixed_bytes:
        found.append(_figure("state_slots", room.state_slots))
        found.append(_figure("state_bytes", room.fixed_bytes, "bytes"))
    if fit is None or not fit.blocks_per_request:
        return Shares(figures=tuple(found))
    pool = next((p for p in room.pools if p.limit == fit.pool), room.pools[0])
    found += [
        _figure("pages_per_request", fit.blocks_per_request, "blocks"),
        _figure(
            "fit",
            fit.fit,
            "requests",
            f"{pool.usable:,} // {fit.blocks_per_request:,} = {fit.fit:,}",
        ),
        _figure("running", fit.running, "requests"),
        _figure("waiting", fit.waiting, "requests"),
    ]
    return Shares(state_pages=_state_pages(case), figures=tuple(found))


def _state_pages(case: Case) -> int:
    """Of a vLLM request, pages of states: all but those that its tokens fill."""
    assert case.plan is not None
    fit, room = case.fit, case.plan.room
    if case.engine != "vllm" or fit is None or not case.hybrid:
        return 0
    return max(0, fit.blocks_per_request - ceil_div(case.load.tokens, room.block_tokens))


def _figure(name: str, value: float, unit: str = "", arithmetic: str = "") -> Figure:
    return Figure(name=name, value=value, unit=unit, how="planned", arithmetic=arithmetic)
