"""What only a measurement shows: whether the client, the prompts and the answers were what they
were meant to be, and whether the machine was alone."""

from collections.abc import Iterator

from kvroom.explain.case import Case
from kvroom.explain.curve import GROWS, curve
from kvroom.explain.finding import CIRCUMSTANCE, SAYS, Confidence, Figure, Finding, Quote, quote
from kvroom.units import show_seconds

SEVERAL = 1.05
"""Tokens an event, from which gaps between events are not gaps between tokens."""
BUSY = 0.5
"""Load average before the run, per core, from which other processes took part in it."""
UNEQUAL = 0.15
"""Half the range of equal rounds, as a share of their mean, that is more than engines scatter."""
SAMPLING = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "presence_penalty",
            "frequency_penalty", "n", "best_of")  # fmt: skip
ENOUGH_ROUNDS = 3
"""With two it cannot be told which of them is the odd one."""
SLOWDOWNS = {
    0x08: "hardware slowdown",
    0x20: "thermal limit of the driver",
    0x40: "thermal limit of the hardware",
    0x80: "power brake",
}
"""Bits of nvmlClocksEventReasons (nvml.h) that a healthy card does not show under load. A power cap
(0x04) is left out: it is how cards are sold."""


def client_too_late(case: Case) -> Iterator[Finding]:
    """Our own client was late, so nothing that was measured at this level may be believed.

    Requests sent late make the engine look slow, and tokens read late make it look uneven. The
    limits stand in the audit of each round.
    """
    one, level = case.measured, case.level
    why = one.voids.get(level) if one and level else None
    if not why or ("late" not in why and "after they arrived" not in why):
        return
    yield Finding(
        cause="client-limited",
        claim=f"at {level} the client was the bottleneck: {why}; what follows from times at this "
        "level may not be believed",
        confidence="certain",
        decides=SAYS,
        remedy="a machine with more free cores for the client, or a lower level",
        rule="client_too_late",
    )


def wrong_lengths(case: Case) -> Iterator[Finding]:
    """Answers have other lengths than asked, so contenders did not do the same work."""
    one = case.measured
    for level in one.levels if one else ():
        short = level.first_round.shorter
        refused = _failed(level.failures, "short", "long")
        if short is None and not refused:
            continue
        least, most, asked = short or (0, 0, case.load.output or 0)
        what = f"{least} to {most} tokens instead of {asked}" if short else refused
        yield Finding(
            cause="wrong-lengths",
            claim=f"at {level.concurrency} answers have {what}: fewer tokens are less work, so "
            "this level cannot be compared",
            confidence="certain",
            decides=SAYS,
            remedy="an endpoint that can be told to ignore the end of a text (ignore_eos, "
            "min_tokens), or a prompt that is answered at length",
            rule="wrong_lengths",
        )
        return


def truncated_prompts(case: Case) -> Iterator[Finding]:
    """The server saw another prompt than was sent, most often one that it cut."""
    for level in case.measured.levels if case.measured else ():
        if not (what := _failed(level.failures, "wrong_prompt")):
            continue
        yield Finding(
            cause="truncated-prompts",
            claim=f"at {level.concurrency}: {what}; what is computed for a cut prompt is not what "
            "was asked for",
            confidence="certain",
            decides=SAYS,
            remedy="a context at least as long as prompt and answer, in each slot",
            settle="a line of the engine's log that says 'truncated' or 'context shift'",
            rule="truncated_prompts",
        )
        return


def _failed(failures: dict[str, int], *kinds: str) -> str:
    """The first reason of these kinds, with how often it was given."""
    for text, count in failures.items():
        kind, _, why = text.partition(": ")
        if kind in kinds:
            return f"{count} answers: {why}" if count > 1 else f"one answer: {why}"
    return ""


def single_slot(case: Case) -> Iterator[Finding]:
    """However many requests come, one streams at a time: the server answers them one by one."""
    top, level = case.top, case.level or 0
    if top is None or level < 2 or top.first_round.flight.max_streaming != 1:
        return
    if case.slots == 1 or (case.fit is not None and case.fit.running == 1):
        return
    ttft = top.ttft_ms
    waited = f"; the last first token came after {show_seconds(ttft.max / 1000)}" if ttft else ""
    yield Finding(
        cause="single-slot",
        claim=f"of {level} requests never more than one streamed at once{waited}: the server takes "
        "one after the other, and does not say so",
        confidence="certain",
        decides=SAYS,
        quotes=quote(case.fact("slots")),
        figures=(Figure(name="streaming", value=1, how="observed"),),
        remedy="more slots, if the engine has a setting for them; else another engine",
        rule="single_slot",
    )


def several_tokens_per_chunk(case: Case) -> Iterator[Finding]:
    """Events carry several tokens, so what arrives together cannot be timed apart."""
    top = case.top
    if top is None or top.first_round.tokens_per_event < SEVERAL or case.settings.speculative:
        return
    each = top.first_round.tokens_per_event
    yield Finding(
        cause="several-tokens-per-chunk",
        claim=f"an event carries {each:.1f} tokens on average: gaps between tokens are means over "
        "an event, and the first token comes with others",
        confidence="certain",
        decides=CIRCUMSTANCE,
        figures=(Figure(name="tokens_per_event", value=round(each, 2), how="observed"),),
        remedy="compare tpot and e2el, not itl; or an engine option that streams every token "
        "(--stream-interval 1)",
        settle="whether the engine guesses tokens ahead: then it is no fault",
        rule="several_tokens_per_chunk",
    )


def speculative_decoding(case: Case) -> Iterator[Finding]:
    """Tokens are guessed ahead: the speed depends on how well this text can be guessed."""
    guess, top = case.settings.speculative, case.top
    if guess is None or top is None:
        return
    each = top.first_round.tokens_per_event
    yield Finding(
        cause="speculative-decoding",
        claim=f"{guess.tokens} tokens are guessed ahead ({guess.method}), and an event carries "
        f"{each:.1f}: speed depends on the text, and prompts of random tokens are guessed worse "
        "than those of people",
        confidence="certain",
        decides=CIRCUMSTANCE,
        quotes=quote(case.fact("acceptance_rate"), case.fact("acceptance_length")),
        remedy="measure with the texts that will be served before it counts for or against",
        rule="speculative_decoding",
    )


def sampling_asked(case: Case) -> Iterator[Finding]:
    """Requests to this contender carry sampling parameters of their own.

    kvroom asks every engine greedily. What a contender's ``body`` adds changes the work of each
    step and the answers, so it is not the same load.
    """
    body = case.measured.contender.body if case.measured else {}
    named = [f"{name} {value}" for name, value in body.items() if name in SAMPLING]
    if not named:
        return
    yield Finding(
        cause="sampling-defaults",
        claim=f"requests to this contender say {', '.join(named)}: another load than that of "
        "contenders that are asked greedily",
        confidence="certain",
        decides=CIRCUMSTANCE,
        remedy="the same body for all contenders",
        rule="sampling_asked",
    )


def warm_up(case: Case) -> Iterator[Finding]:
    """The first measured rounds were slower than later ones: the engine was not warm.

    Compiling, capturing and filling caches go on after an engine says that it is ready.
    """
    starts = case.measured.starts if case.measured else []
    begin = starts[-1].begin if starts else None
    if begin is not None and (begin.slow_rounds or 0) > 1:
        assert begin.slow_rounds is not None
        yield _cold(f"the warm-up and {begin.slow_rounds - 1} measured rounds after it were not "
                    f"yet at steady speed, {show_seconds(begin.slow_s or 0)} in all")  # fmt: skip
        return
    spread = case.top.output_throughput_rounds if case.top else None
    if spread is None or spread.n < ENOUGH_ROUNDS:
        return
    others = (spread.mean * spread.n - spread.first) / (spread.n - 1)
    if spread.first < others * (1 - UNEQUAL) and spread.high < others * (1 + UNEQUAL):
        yield _cold(f"the first round at {case.level} made {spread.first:,.0f} tok/s, later ones "
                    f"{others:,.0f}")  # fmt: skip


def _cold(claim: str) -> Finding:
    return Finding(
        cause="warm-up",
        claim=claim,
        confidence="likely",
        decides=CIRCUMSTANCE,
        remedy="more warm-up requests (warmup_requests), as many as the level has",
        settle="another round at the same level",
        rule="warm_up",
    )


def host_noise(case: Case) -> Iterator[Finding]:
    """The machine was not alone, or the card was held down."""
    yield from _held_down(case)
    spread = case.top.output_throughput_rounds if case.top else None
    half = (spread.high - spread.low) / 2 / spread.mean if spread and spread.mean else 0.0
    if case.load_per_core is not None and case.load_per_core > BUSY:
        yield _noisy(f"{case.load_per_core:.1f} processes a core were running before the run "
                     "began", "likely")  # fmt: skip
    elif half > UNEQUAL and spread is not None:
        yield _noisy(f"equal rounds at {case.level} made {spread.low:,.0f} to {spread.high:,.0f} "
                     "tok/s", "possible")  # fmt: skip


def _held_down(case: Case) -> Iterator[Finding]:
    mask = case.live.throttled if case.live and case.live.throttled else 0
    why = [name for bit, name in SLOWDOWNS.items() if mask & bit]
    if not why:
        return
    assert case.live is not None
    clocks = case.live.clock_mhz
    fell = f", and its clock ran between {clocks[0]:,} and {clocks[1]:,} MHz" if clocks else ""
    yield _noisy(f"the card was held down while it was measured ({', '.join(why)}){fell}",
                 "certain")  # fmt: skip


def _noisy(claim: str, confidence: Confidence) -> Finding:
    return Finding(
        cause="host-noise",
        claim=claim,
        confidence=confidence,
        decides=CIRCUMSTANCE,
        remedy="a machine that does nothing else, cool and with fixed clocks; more rounds",
        settle="the same level again with nothing else running",
        rule="host_noise",
    )


def still_grows(case: Case) -> Iterator[Finding]:
    """Throughput still grows at the highest level and nothing waits: the load is the limit."""
    found = curve(case)
    if found is None or found.best is not found.top or found.together < found.top.concurrency:
        return
    if len(found.points) < 2 or case.state("most_waiting") is not None:
        return
    before, top = found.points[-2], found.top
    yield Finding(
        cause="client-limited",
        claim=f"all {top.concurrency} run at once and throughput still grows, from "
        f"{before.tokens_per_s:,.0f} tok/s at {before.concurrency} to {top.tokens_per_s:,.0f}: the "
        "load, not the engine, is the limit",
        confidence="certain" if top.tokens_per_s > 2 * GROWS * before.tokens_per_s else "likely",
        quotes=_moments(case),
        remedy="a higher level of concurrency shows where it ends",
        rule="still_grows",
    )


def _moments(case: Case) -> tuple[Quote, ...]:
    state = case.state("most_running")
    return (Quote(state.source, state.text),) if state else ()
