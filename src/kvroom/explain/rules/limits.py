"""What holds requests back although the pool has room: slots, steps, contexts, graphs."""

from collections.abc import Iterator

from kvroom.explain.case import Case
from kvroom.explain.course import State
from kvroom.explain.finding import ARITHMETIC, SAYS, Change, Figure, Finding, logged, quote

HALF_FULL = 0.8
"""Below this usage a pool keeps nobody out."""
PREFILL_RATIO = 10.0
"""Prompt tokens for each generated one, from which on steps are full of prompts."""
SPARE_STATES = 5
"""State slots that a request may take in SGLang, with speculation and reuse of prefixes."""


def slots_limit(case: Case) -> Iterator[Finding]:
    """More requests come than the engine runs at once by its own setting, and the pool would hold
    more of them."""
    slots, asked, fit = case.slots, case.load.concurrency, case.fit
    if slots is None or asked is None or slots >= asked:
        return
    if fit is not None and fit.binds != "slots":
        return
    most = case.fact("max_concurrency")
    holds = fit.fit if fit else most.value if most and isinstance(most.value, float) else None
    if holds is None or holds < slots:
        return
    claim = f"{slots} run at once by setting, {asked - slots} of {asked} wait; the pool holds "
    claim += f"{holds:,.0f}" if fit else f"{holds:.2f} of the greatest length"
    yield Finding(
        cause="slots-limit",
        claim=claim,
        confidence="certain",
        quotes=quote(case.fact("slots"), most),
        figures=(
            Figure(name="slots", value=slots, how="given"),
            Figure(name="waiting", value=asked - slots, how="planned"),
            *logged(most),
        ),
        remedy=f"slots: {asked}, as far as the pool holds them",
        rule="slots_limit",
    )


def context_divided(case: Case) -> Iterator[Finding]:
    """The context was given once and is divided among the slots.

    llama.cpp divides ``-c`` by ``--parallel`` unless the cache is unified; Ollama multiplies
    ``num_ctx`` instead, so each slot has what was asked, and the memory is that many times as much.
    """
    if case.engine not in ("llamacpp", "ollama"):
        return
    whole, slots = _context(case)
    fits = case.load.tokens and case.load.tokens <= (whole or 0) // max(1, slots)
    if not whole or slots < 2 or fits:
        return
    each = whole // slots
    yield Finding(
        cause="slots-limit",
        claim=f"a context of {whole:,} tokens is divided among {slots} slots: a request has "
        f"{each:,}",
        confidence="certain",
        quotes=quote(case.fact("context_tokens"), case.fact("slot_tokens"), case.fact("slots")),
        figures=(
            Figure(name="slots", value=slots, how="given"),
            Figure(
                name="slot_tokens", value=each, how="planned", arithmetic=f"{whole:,} // {slots}"
            ),
        ),
        remedy="a context that many times as long, fewer slots, or a unified cache (--kv-unified)",
        rule="context_divided",
    )


def _context(case: Case) -> tuple[int, int]:
    """The whole context and the slots that divide it, by the log, else by the options."""
    whole, each = case.number("context_tokens"), case.number("slot_tokens")
    if whole and each:
        return int(whole), round(whole / each)
    asked = case.options.get("-c") or case.options.get("--ctx-size") or ""
    parallel = case.options.get("-np") or case.options.get("--parallel") or ""
    unified = any(name in case.options for name in ("-kvu", "--kv-unified"))
    if asked.isdigit() and parallel.isdigit() and not unified:
        return int(asked), int(parallel)
    return 0, 0


def spare_states(case: Case) -> Iterator[Finding]:
    """Many more state slots are kept than requests may run, each at the price of tokens."""
    kept = case.log.highest("state_slots") if case.log else None
    slots = case.slots
    if case.engine != "sglang" or kept is None or not slots or not isinstance(kept.value, float):
        return
    if kept.value <= SPARE_STATES * slots or case.load.conversations:
        return
    yield Finding(
        cause="state-fixed-cost",
        claim=f"{kept.value:.0f} state slots are kept for {slots} running "
        f"{'request' if slots == 1 else 'requests'}; every slot is taken from the tokens",
        confidence="likely",
        quotes=quote(kept, case.fact("kv_tokens")),
        figures=(*logged(kept), *logged(case.fact("kv_tokens"))),
        remedy="fewer (--max-mamba-cache-size), unless prefixes of many conversations are to be "
        "found again",
        rule="spare_states",
    )


def one_block_a_step(case: Case) -> Iterator[Finding]:
    """A step is not two blocks long, so prompts are computed one after the other.

    With ``--mamba-cache-mode align`` vLLM cuts prompts at block boundaries: a prompt takes a whole
    block of the step or nothing. Source: v1/core/sched/scheduler.py (_mamba_block_aligned_split).
    """
    mode = case.options.get("--mamba-cache-mode") or str(
        getattr(case.fact("state_cache_mode"), "value", "")
    )
    block = case.number("kv_block_tokens") or (case.plan.room.block_tokens if case.plan else 0)
    block = block or case.block_tokens or 0
    step, prompt = case.settings.batch_tokens, case.load.prompt or 0
    together = (case.load.concurrency or 1) > 1 or case.load.rate
    if mode != "align" or not block or not step or not together:
        return
    if step >= 2 * block or prompt <= step:
        return
    yield Finding(
        cause="batch-token-limit",
        claim=f"a step of {step:,} tokens holds one block of {block:,.0f}: of several prompts only "
        f"one advances at a time, each in {-(-prompt // step)} steps",
        confidence="certain" if case.state("last") else "likely",
        quotes=quote(case.fact("kv_block_tokens"), case.fact("running")),
        figures=(
            Figure(name="chunks_per_prompt", value=-(-prompt // step), how="planned",
                   arithmetic=f"{prompt:,} / {step:,}, rounded up"),
            Figure(name="batch_tokens", value=step, how="given"),
        ),
        remedy=f"batch_tokens of {4 * block:,.0f} or more",
        changes=(
            Change(
                setting="batch_tokens",
                now=str(step),
                to=str(int(4 * block)),
                value=int(4 * block),
                because="several prompts then share a step",
                effect=f"{int(4 * block) // int(block)} prompts advance together",
                price="activations of the larger step come off the pool",
                verify="several run in the lines with Running:",
            ),
        ),
        rule="one_block_a_step",
    )  # fmt: skip


def prompts_fill_steps(case: Case) -> Iterator[Finding]:
    """Requests wait while the pool is far from full: each step is full of prompt tokens.

    A waiting request is let in when the step has room for a part of its prompt. Long prompts that
    come together use up every step, and those behind them wait for their turn, not for memory.
    """
    state = case.state("most_waiting")
    if state is None or state.kv_cache_usage is None or state.kv_cache_usage >= HALF_FULL:
        return
    prompts, generated = state.prompt_tokens_per_s or 0, state.generation_tokens_per_s or 0
    if not state.running or prompts < PREFILL_RATIO * max(1.0, generated):
        return
    if case.slots is not None and state.running >= case.slots:
        return
    yield Finding(
        cause="batch-token-limit",
        claim=f"{state.waiting:.0f} wait while the pool is {state.kv_cache_usage:.1%} full: steps "
        f"are full of prompts, {prompts:,.0f} prompt tokens a second beside {generated:,.0f} "
        "generated ones",
        confidence="certain",
        decides=SAYS,
        quotes=quote(case.fact("waiting")),
        figures=_of(state),
        remedy="the prompts are the work: a faster prefill (a larger batch_tokens where the card "
        "is not busy, more cards), or fewer at once",
        rule="prompts_fill_steps",
    )


def _of(state: State) -> tuple[Figure, ...]:
    return tuple(
        Figure(name=name, value=value, how=state.how, source=str(state.source))
        for name in ("running", "waiting", "kv_cache_usage", "prompt_tokens_per_s")
        if (value := getattr(state, name)) is not None
    )


def queue_at_slots(case: Case) -> Iterator[Finding]:
    """Requests wait while the pool is far from full and as many run as there are slots."""
    state, slots = case.state("most_waiting"), case.slots
    if state is None or slots is None or not state.waiting or state.running < slots:
        return
    if (state.kv_cache_usage or 0) >= HALF_FULL or case.fit is not None:
        return
    yield Finding(
        cause="slots-limit",
        claim=f"{state.running:.0f} run, as many as there are slots, and {state.waiting:.0f} wait "
        "while the pool has room",
        confidence="certain",
        decides=SAYS,
        quotes=quote(case.fact("slots"), case.fact("waiting")),
        figures=(*_of(state), Figure(name="slots", value=slots, how="given")),
        remedy="more slots",
        rule="queue_at_slots",
    )


def graph_miss(case: Case) -> Iterator[Finding]:
    """More requests run than the largest captured graph holds.

    Steps of more requests than were captured are launched kernel by kernel: the processor's time
    for it, and not the card, then sets the pace.
    """
    largest, state = case.fact("largest_graph"), case.state("most_running")
    if largest is None or not isinstance(largest.value, float):
        return
    asked, slots = case.load.concurrency, case.slots
    come = min(value for value in (asked, slots, 1 << 30) if value)
    seen = state is not None and state.running > largest.value
    if not seen and not (come > largest.value and (asked or case.load.rate)):
        return
    many = f"{state.running:.0f} run" if seen and state else f"up to {come:,} may run"
    yield Finding(
        cause="cuda-graph-miss",
        claim=f"the largest captured graph holds {largest.value:.0f} requests, and {many}: steps "
        "above it are launched kernel by kernel",
        confidence="certain" if seen else "likely",
        decides=SAYS if seen else ARITHMETIC,
        quotes=quote(largest, case.fact("cuda_graph")),
        figures=logged(largest),
        remedy="capture graphs up to as many requests as run",
        changes=(
            Change(
                setting="cuda_graphs",
                now=f"{largest.value:.0f}",
                to=str(asked or slots or 256),
                value=asked or slots or 256,
                because="a captured step costs the processor one launch",
                effect="steps above the largest graph take as long as the card needs",
                price="seconds of the start, and a little memory for each size",
                verify="the sizes in the capture line go up to it; 'cuda graph: True' while it "
                "serves",
            ),
        ),
        settle="" if seen else "a line that tells how many run",
        rule="graph_miss",
    )
