"""What is found where nothing is wrong: the load is the limit, or the number is right."""

from collections.abc import Iterator

from kvroom.explain.case import Case
from kvroom.explain.finding import ARITHMETIC, CIRCUMSTANCE, SAYS, Figure, Finding, logged, quote
from kvroom.explain.shares import shares
from kvroom.room import Ask

CLOSE = 0.002
NEARLY_ALL = 0.85
PER_GROUP_BEFORE = (0, 20, 1)
"""vLLM printed a pool divided by its groups until then."""


def client_limited(case: Case) -> Iterator[Finding]:
    """Everything that came ran at once: the load, not the engine, is the limit."""
    state, asked = case.state("most_running"), case.load.concurrency
    if state is None or asked is None or case.state("most_waiting") is not None:
        return
    if not NEARLY_ALL * asked <= state.running <= asked:
        return
    yield Finding(
        cause="client-limited",
        claim=f"{state.running:.0f} of {asked} run and none waits: more at once is what the engine "
        "could still take",
        confidence="likely",
        decides=SAYS,
        quotes=quote(case.fact("running")),
        figures=(Figure(name="running", value=state.running, how="logged"),),
        remedy="a higher level of concurrency shows where it ends",
        rule="client_limited",
    )


def printed_per_group(case: Case) -> Iterator[Finding]:
    """The printed tokens are the pool divided by its groups of layers, so they look too few.

    vLLM before 0.20.1 printed ``blocks // groups x block``. What counts is the concurrency times
    the length beside it. Source: v1/core/kv_cache_utils.py (0.19 and 0.31).
    """
    told, most, length = case.fact("kv_tokens"), case.fact("max_concurrency"), case.settings.max_len
    if case.engine != "vllm" or told is None or most is None or not length or not case.hybrid:
        return
    if not case.before(*PER_GROUP_BEFORE) or case.failed:
        return
    assert isinstance(told.value, float)
    assert isinstance(most.value, float)
    true = most.value * length
    if true < 1.5 * told.value:
        return
    block = case.plan.room.block_tokens if case.plan else 0
    why = f", whose page of {block:,} tokens is as large as one layer's state" if block else ""
    figures = (
        *shares(case).figures,
        Figure(name="true_tokens", value=round(true), unit="tokens", how="planned",
               arithmetic=f"{most.value} x {length:,}"),
        *logged(told, "logged_tokens"),
    )  # fmt: skip
    claim = f"the pool holds {true:,.0f} tokens, not {told.value:,.0f}: this release prints it "
    claim += f"divided by the groups of layers{why}"
    yield Finding(
        cause="page-unification" if case.quantised else "benign",
        claim=claim,
        confidence="certain",
        decides=ARITHMETIC,
        quotes=quote(told, most),
        figures=figures,
        remedy="read the capacity as concurrency times length",
        rule="printed_per_group",
    )


def as_planned(case: Case) -> Iterator[Finding]:
    """Every figure of the log is what the arithmetic gives, so the number is right.

    A pool that is large is no loss: engines take what the memory fraction leaves them, whether
    requests need it or not.
    """
    checks = [check for check in (case.plan.checks if case.plan else ()) if check.logged]
    if case.failed or not checks or not all(check.agrees for check in checks):
        return
    yield Finding(
        cause="benign",
        claim="the figures are right: "
        + "; ".join(f"{check.expected.wording} {check.expected.value:,}" for check in checks[:3])
        + " are what the model's shape and the settings give",
        confidence="likely",
        decides=CIRCUMSTANCE,
        quotes=quote(*(check.logged for check in checks)),
        figures=shares(case).figures,
        remedy="leave it; a smaller memory_fraction gives back what is not needed",
        settle="the load (--concurrency, --prompt, --output), if something is slow under it"
        if not case.load.tokens
        else "",
        rule="as_planned",
    )


def bytes_per_token_agree(case: Case) -> Iterator[Finding]:
    """The bytes of the cache divided by its tokens are what the layers of the model need."""
    size, tokens, shape = _bytes(case), _tokens(case), case.architecture
    if size is None or tokens is None or shape is None or case.failed:
        return
    each = sum(a.layers * a.elements(case.settings.tensor_parallel or 1) for a in shape.attention)
    bits = size * 8 / tokens / each if each else 0
    near = next((b for b in (16, 8, 8.5, 4.5) if abs(bits - b) <= max(CLOSE * b, 0.02)), None)
    if near is None:
        return
    yield Finding(
        cause="benign",
        claim=f"the number is right: {size / tokens:,.0f} B a token is {each:,} elements of "
        f"{near} bits, as the shape of the model asks for",
        confidence="likely",
        decides=CIRCUMSTANCE,
        quotes=quote(case.fact("kv_bytes"), case.fact("available_bytes"), case.fact("kv_blocks")),
        figures=(
            Figure(name="bytes_per_token", value=round(each * near / 8), how="planned",
                   unit="bytes",
                   arithmetic=f"{each:,} elements x {near} bits; {size:,.0f} B hold {tokens:,.0f}"),
        ),
        remedy="leave it; engines take what they are allowed to, whether requests need it or not",
        rule="bytes_per_token_agree",
    )  # fmt: skip


def _bytes(case: Case) -> float | None:
    """Of the cache, or TensorRT-LLM's share of what is left."""
    left, share = case.number("available_bytes"), case.adapter.share
    if case.number("kv_bytes") or left is None or share is None or case.architecture is None:
        return case.number("kv_bytes")
    taken = share(Ask(architecture=case.architecture, settings=case.settings, available=0))
    return left * taken.fraction if taken.of == "rest" else left


def _tokens(case: Case) -> float | None:
    block = case.number("kv_block_tokens") or case.block_tokens
    blocks = case.number("kv_blocks")
    if blocks and block:
        return blocks * block
    named = case.number("kv_tokens") or case.number("kv_allocated_tokens")
    return named or case.number("context_tokens") or case.number("slot_tokens")


def states_agree(case: Case) -> Iterator[Finding]:
    """The bytes of recurrent states are slots times what one state of this model takes."""
    size, slots, shape = case.fact("state_bytes"), case.number("state_slots"), case.architecture
    if size is None or not slots or shape is None or not isinstance(size.value, float):
        return
    each = 4 * sum(s.layers * (s.conv() + s.ssm()) for s in shape.states)
    if case.failed or not each or abs(size.value - slots * each) > CLOSE * size.value:
        return
    yield Finding(
        cause="benign",
        claim=f"the number is right: {slots:.0f} sequences keep a state of {each / 2**20:.2f} MiB "
        "each, whatever their length",
        confidence="likely",
        decides=CIRCUMSTANCE,
        quotes=quote(size),
        figures=(
            *logged(size),
            Figure(name="mib_per_sequence", value=round(each / 2**20, 2), how="planned",
                   arithmetic=f"{size.value / 2**20:.2f} MiB / {slots:.0f}"),
        ),
        remedy="leave it",
        rule="states_agree",
    )  # fmt: skip
