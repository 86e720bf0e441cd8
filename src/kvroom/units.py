"""Sizes and times as people write and read them; inside the program they are plain bytes and ns."""

import re

NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000

_SUFFIX = {
    "": 1,
    "B": 1,
    "kB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


class Bytes(int):
    """A number of bytes. In YAML it is written as a number or as text such as ``20MiB``."""

    def __repr__(self) -> str:
        return show_bytes(self)


def parse_bytes(value: int | str) -> Bytes:
    """Bytes from ``20971520`` or ``"20MiB"``; ValueError says what was expected.

    A bare ``20M`` is refused: engines disagree whether it means 20 MB or 20 MiB.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        amount, suffix = float(value), ""
    else:
        match = _SIZE.fullmatch(str(value))
        if match is None or match[2] not in _SUFFIX:
            raise ValueError(f"{value!r} is not a size; write it like 20MiB, 1.5GiB or 20971520")
        amount, suffix = float(match[1]), match[2]
    if amount < 0:
        raise ValueError(f"{value!r} is not a size; it must not be negative")
    return Bytes(round(amount * _SUFFIX[suffix]))


def show_bytes(count: float) -> str:
    """``22.5 MiB``: in the largest binary unit that leaves at least one, to two decimals."""
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(count) < 1024 or unit == "GiB":
            break
        count /= 1024
    digits = f"{count:.2f}".rstrip("0").rstrip(".")
    return f"{count:.0f} B" if unit == "B" else f"{digits} {unit}"


def show_seconds(seconds: float) -> str:
    """``0.56 s``, ``12 s``, ``3 min 05 s``."""
    if seconds < 10:
        return f"{seconds:.2f} s"
    if seconds < 100:
        return f"{seconds:.0f} s"
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s"
