"""Failures that a line of the log shows by itself."""

from collections import defaultdict
from collections.abc import Iterator

from kvroom.explain.case import Case
from kvroom.explain.finding import CIRCUMSTANCE, SAYS, Change, Finding, quote
from kvroom.explain.signatures import Hit

ALSO = {
    "state-fixed-cost": "what every request or slot takes before its first token is the larger "
    "part of it",
    "kv-exhausted": "together the requests need more of the pool than there is",
    "slots-limit": "the number that may run at once is what the others wait for",
    "runtime-oom": "memory ran out while it served: what is allocated beside the pool did not fit",
    "weights-extra": "the weights are the larger part of what is taken",
    "attention-backend-switch": "without flash attention other kernels run as well",
}
"""What it means that a second cause is true together with the first."""


def known_failure(case: Case) -> Iterator[Finding]:
    """A line that is known from the engine's source or from other people's trouble.

    The catalogue holds the wording, the releases, the cause and the remedy. Of a failed start the
    first such line is the root; what follows it are its consequences.
    """
    for hit in case.log.hits if case.log else ():
        yield from _findings(hit, case)


def _findings(hit: Hit, case: Case) -> Iterator[Finding]:
    one = hit.signature
    never_served = one.cause == "runtime-oom" and case.failed
    words = defaultdict(str, hit.groups)
    change = Change(
        setting=one.setting,
        now="",
        to=one.to.format_map(words),
        because=one.claim.format_map(words),
        effect=one.verify.format_map(words),
        price=one.price.format_map(words),
        verify=one.verify.format_map(words),
    )
    yield Finding(
        cause="oom-at-start" if never_served else one.cause,
        claim=one.claim.format_map(words),
        confidence=one.confidence,
        decides=CIRCUMSTANCE if one.circumstance else SAYS,
        quotes=(hit.quote,),
        remedy=one.remedy.format_map(words),
        changes=(change,) if one.setting and change.to else (),
        settle=one.settle,
        rule=one.name,
    )
    for cause in one.also:
        yield Finding(
            cause=cause,
            claim=ALSO[cause],
            confidence="likely",
            decides=CIRCUMSTANCE,
            quotes=(hit.quote,),
            rule=one.name,
        )


def own_error(case: Case) -> Iterator[Finding]:
    """The engine ended with an error that no entry of the catalogue explains.

    Its own last words are the evidence; nothing more is claimed.
    """
    error = case.fact("error")
    if error is None or not case.failed or case.log is None or case.log.hits:
        return
    yield Finding(
        cause="unsupported/crash",
        claim=f"the engine ended with an error that is not in the catalogue: {error.value}",
        confidence="possible",
        decides=SAYS,
        quotes=quote(error),
        settle="the lines before it, and the same start with one option less at a time",
        rule="own_error",
    )
