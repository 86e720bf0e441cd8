"""Options that do nothing, or something else than is thought."""

import difflib
from collections.abc import Iterator

from kvroom.catalogue import catalogue
from kvroom.explain.case import Case
from kvroom.explain.finding import (
    ARITHMETIC,
    CIRCUMSTANCE,
    Cause,
    Change,
    Finding,
    logged,
    quote,
)

PREFIXES = {"ollama": "OLLAMA_"}
HOST_SHARE = 0.25
MANY_SPLITS = 50
CRASH: Cause = "unsupported/crash"


def unknown_variable(case: Case) -> Iterator[Finding]:
    """An environment variable that looks like the engine's and that it does not read.

    Nobody complains about it: the engine takes its default.
    """
    prefix, listed = PREFIXES.get(case.engine), catalogue(case.engine)
    if prefix is None or listed is None:
        return
    known = {name for options in listed.versions.values() for name in options}
    unknown = [name for name in case.options if name.startswith(prefix) and name not in known]
    if not unknown:
        return
    near = difflib.get_close_matches(unknown[0], known, n=1, cutoff=0.6)
    if any(word in unknown[0] for word in ("CTX", "CONTEXT")):
        near = [f"{prefix}CONTEXT_LENGTH"]
    yield Finding(
        cause="config-ignored/deprecated",
        claim=f"{' and '.join(unknown)} {'is' if len(unknown) == 1 else 'are'} not read by "
        f"{case.engine}: its own default is in effect",
        confidence="likely",
        quotes=quote(case.fact("context_tokens"), case.fact("slot_tokens")),
        remedy=f"{near[0]} is what it reads" if near else "take it out",
        changes=(
            Change(
                setting=near[0],
                now="not set",
                to=case.options[unknown[0]],
                because=f"{unknown[0]} is not read",
                effect="what was asked for",
                verify="the engine lists its configuration when it starts",
            ),
        )
        if near
        else (),
        rule="unknown_variable",
    )


def sampling_on_host(case: Case) -> Iterator[Finding]:
    """Every token is chosen out of the whole vocabulary on the processor.

    llama.cpp samples on the host. Without a top-k the later steps sort the whole vocabulary for
    every token, and the card waits for it.
    """
    if case.engine != "llamacpp" or case.options.get("--top-k") != "0":
        return
    yield Finding(
        cause="host-noise",
        claim="--top-k 0 leaves the whole vocabulary to the sampler, which runs on the processor "
        "for every token",
        confidence="likely",
        quotes=quote(case.fact("sampling_ms"), case.fact("eval_ms")),
        figures=(*logged(case.fact("sampling_ms")), *logged(case.fact("eval_ms"))),
        remedy="--top-k 40 or so: the answers are the same but for the rarest words",
        changes=(
            Change(
                setting="--top-k",
                now="0",
                to="40",
                because="the sampler then has 40 tokens to weigh",
                effect="the time between tokens falls to what the card needs",
                price="tokens beyond the 40 likeliest are never chosen",
                verify="'sampling time' per token beside 'eval time'",
            ),
        ),
        rule="sampling_on_host",
    )


def layers_on_host(case: Case) -> Iterator[Finding]:
    """Part of the cache, and so of the layers, lies in the processor's memory.

    The graph is cut wherever it changes sides, and each cut is a copy in every step.
    """
    part, splits = case.fact("kv_part_bytes"), case.fact("graph_splits")
    told = case.log.facts.get("kv_part_bytes") if case.log else None
    if part is None or splits is None or told is None or told.times < 2:
        return
    if not isinstance(splits.value, float) or splits.value < MANY_SPLITS:
        return
    on_host = any("CUDA_Host" in fact.text for fact in (told.first, told.last, told.highest))
    if not on_host:
        return
    yield Finding(
        cause="unsupported/crash",
        claim=f"a part of the KV cache is on the host and the graph is cut {splits.value:.0f} "
        "times: this build does not use a card, or a memory, that it is thought to have",
        confidence="likely",
        decides=ARITHMETIC,
        quotes=quote(told.first, told.last, splits),
        figures=(*logged(splits),),
        remedy="the lines that list the cards; a build for the driver that is there; a context "
        "short enough for the card alone",
        settle="how many cards the start lists",
        rule="layers_on_host",
    )


def quantised_without_gain(case: Case) -> Iterator[Finding]:
    """A cache of fewer bits where the pool is not what holds requests back.

    It changes the kernels of attention, and with few requests at once that costs more than the
    bytes it saves.
    """
    few = case.load.concurrency is not None and case.load.concurrency <= 4
    waits = case.state("most_waiting") is not None or (case.fit is not None and case.fit.waiting)
    if not case.quantised or not few or waits or case.engine not in ("vllm", "sglang", "trtllm"):
        return
    yield Finding(
        cause="attention-backend-switch",
        claim=f"kv_cache_dtype {case.settings.kv_cache_dtype} chooses other attention kernels, and "
        f"with {case.load.concurrency} at once the pool is not what binds",
        confidence="possible",
        decides=CIRCUMSTANCE,
        quotes=quote(case.fact("attention_backend"), case.fact("kv_cache_dtype")),
        remedy="the model's own dtype, unless the pool is what holds requests back",
        changes=(
            Change(
                setting="kv_cache_dtype",
                now=case.settings.kv_cache_dtype or "",
                to="auto",
                value="auto",
                because="the default kernels",
                effect="what the other kernels cost is gained",
                price="half as many tokens in the pool",
                verify="the line that names the attention backend",
            ),
        ),
        settle="the attention backend that both starts name, and one level at concurrency 1",
        rule="quantised_without_gain",
    )


def known_to_fail(case: Case) -> Iterator[Finding]:
    """An option is set that is known to fail, or to do nothing, in this release.

    The engine's adapter lists such options with what the engine says then, and the remedy. It is
    certain where the log shows that error, and likely where only option and release are the same.
    """
    if case.log is not None and any(hit.signature.cause == CRASH for hit in case.log.hits):
        return
    for one in case.adapter.known:
        given = {name.lstrip("-"): value for name, value in case.options.items()}
        value = given.get(one.option.lstrip("-"))
        if value is None or case.version not in one.versions:
            continue
        if one.value is not None and value.lower() not in ("", str(one.value).lower()):
            continue
        yield Finding(
            cause=CRASH if case.failed else "config-ignored/deprecated",
            claim=f"{one.option} is known to fail in {case.engine} {case.version}: {one.cause}",
            confidence="likely",
            decides=CIRCUMSTANCE,
            quotes=quote(case.fact("error")),
            remedy=one.remedy,
            settle="the same start without it",
            rule="known_to_fail",
        )
