"""The one clock of a run: monotonic nanoseconds, the same in every process of this machine."""

import time

now_ns = time.monotonic_ns

_CLOSE_ENOUGH = 9


def wall_offset_ns() -> int:
    """Nanoseconds to subtract from a wall-clock stamp to place it on the monotonic clock.

    Kernel receive stamps are wall-clock. The two clocks are read back to back several times and
    the tightest pair counts, so the error is well under a microsecond.
    """
    best_gap, best_offset = None, 0
    for _ in range(_CLOSE_ENOUGH):
        before = time.monotonic_ns()
        wall = time.time_ns()
        after = time.monotonic_ns()
        gap = after - before
        if best_gap is None or gap < best_gap:
            best_gap, best_offset = gap, wall - (before + after) // 2
    return best_offset
