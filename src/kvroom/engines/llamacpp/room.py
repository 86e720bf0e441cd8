"""llama.cpp's KV room, planned: all of it is allocated at the start, whether used or not.

With a number of slots each has cells of its own. Left alone, llama-server takes four slots that
share one cache ("unified"): each may then fill what the others leave, and when nothing is left
every running request fails. Formulas: llama-context.cpp (padding, division), commit 0c1e57098.
"""

from kvroom.cells import cells_of, known_dtype, padded, state_bytes, token_bytes
from kvroom.room import Ask, Expected, KvRoom, Pages

AUTO_SLOTS = 4
MIB = 1 << 20


def plan(ask: Ask) -> KvRoom:
    """The room for an ask. ``available`` does not size it: llama.cpp allocates what is asked."""
    dtype = known_dtype("llama.cpp", ask.settings.kv_cache_dtype)
    unified = ask.settings.slots is None
    slots = ask.settings.slots or AUTO_SLOTS
    context = _context(ask, slots, unified)
    streams, sharing = (1, slots) if unified else (slots, 1)
    growing = [a for a in ask.architecture.attention if a.kind != "cross"]
    caches = sum(streams * cells_of(a, context, sharing) * token_bytes(a, dtype) for a in growing)
    state = state_bytes(ask.architecture)
    longest = min(context, ask.architecture.max_len or context)
    return KvRoom(
        bytes_per_token=round(sum(token_bytes(a, dtype) for a in growing)),
        pool_bytes=round(caches) + slots * state,
        fixed_bytes=slots * state,
        state_slots=slots if state else 0,
        blocks=context if unified else slots,
        block_tokens=1 if unified else context,
        tokens=streams * context,
        pools=(_shared(context) if unified else _own(slots),),
        slots=slots,
        max_len=longest,
        max_concurrency=streams * context / longest,
        reserves_end=not unified,
        too_long="the answer ends early with finish_reason length; a longer prompt gets HTTP 400",
        expected=_expected(slots, streams, context, caches, slots * state),
        arithmetic=(
            f"{streams * context} cells: "
            + (f"one cache for {slots} slots" if unified else f"{context} for each of {slots}"),
            *(
                f"{a.layers} {a.kind} layers: {token_bytes(a, dtype):,.0f} B a token in {dtype}, "
                f"{cells_of(a, context, sharing)} cells"
                for a in growing
            ),
            f"{caches / MIB:.2f} MiB of cache and {slots * state / MIB:.2f} MiB of state, "
            "allocated whether used or not",
        ),
    )


def _context(ask: Ask, slots: int, unified: bool) -> int:
    """Cells of one stream. Without a length the model's own is the whole pool."""
    length = ask.length()
    if ask.settings.max_len is None:
        return padded(length if unified else length // slots)
    return padded(slots * length if unified else length)


def _own(slots: int) -> Pages:
    """A slot holds one request, whatever its length."""
    return Pages(limit="slots", usable=slots, admission=lambda p, o: 1, end=lambda p, o: 1)


def _shared(cells: int) -> Pages:
    return Pages(limit="kv", usable=cells, admission=lambda p, o: p, end=lambda p, o: p + o)


def _expected(
    slots: int, streams: int, context: int, caches: float, states: int
) -> tuple[Expected, ...]:
    figures = [
        Expected("slots", "llama_context: n_seq_max", slots),
        Expected("context_tokens", "llama_context: n_ctx", streams * context),
        Expected("", "llama_context: n_ctx_seq", context),
        Expected("kv_bytes", "llama_kv_cache: size (MiB)", round(caches / MIB, 2), MIB),
    ]
    if states:
        wording = "llama_memory_recurrent: size (MiB)"
        figures.append(Expected("state_bytes", wording, round(states / MIB, 2), MIB))
    return tuple(figures)
