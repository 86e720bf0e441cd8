"""Can a round be believed, and compared? If not, it is void, whatever it shows."""

from kvroom.analyse.metrics import RoundMetrics
from kvroom.stats import Percentiles

LATE_MS = 10.0
LATE_SHARE = 0.10
"""The latest request may be sent, and the latest token read, so late, or by this share of what the
round measured; the mean is then off by at most half of it, which is noise."""
MERGED = 1.05
"""More events than this per read, and arrival times were lost."""


def void_reason(measured: RoundMetrics) -> str | None:
    """Why the round cannot be believed, or None.

    Latency counts from due, so a request sent late makes the engine look slow. A token read late
    does harm only where the kernel did not stamp it, or where several were read at once.
    """
    if measured.shorter is not None:
        least, most, asked = measured.shorter
        return (
            f"answers had {least} to {most} tokens instead of {asked}, and the engine cannot be "
            "made to write more: not comparable"
        )
    ttft = Percentiles.of(measured.ttft_ms)
    allowed = max(LATE_MS, LATE_SHARE * ttft.p50 if ttft else 0.0)
    if measured.send_late_ms > allowed:
        return (
            f"requests were sent up to {measured.send_late_ms:.0f} ms late (99th percentile), "
            f"more than the {allowed:.0f} ms allowed"
        )
    itl = Percentiles.of(measured.itl_ms)
    allowed = max(LATE_MS, LATE_SHARE * itl.p50 if itl else 0.0)
    merged = measured.events_per_read > MERGED
    if measured.read_late_ms is not None and measured.read_late_ms > allowed and merged:
        return (
            f"tokens were read up to {measured.read_late_ms:.0f} ms after they arrived, several at "
            f"once, more than the {allowed:.0f} ms allowed"
        )
    return None
