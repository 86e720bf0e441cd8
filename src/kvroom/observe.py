"""What the machine is and how busy it is."""

import contextlib
import functools
import os
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

from kvroom.records import DeviceSample


class Device(msgspec.Struct, frozen=True):
    """An accelerator of this machine."""

    name: str
    memory_bytes: int
    """All of it, as its driver reports."""


def devices() -> list[Device]:
    """The NVIDIA cards of this machine; none where there is no driver, or it does not answer."""
    return [Device(name, int(memory.total)) for name, memory, _ in _cards()]


def device_samples() -> list[DeviceSample]:
    """The NVIDIA cards now; what a card does not tell is left out."""
    import pynvml

    found = []
    for name, memory, handle in _cards():
        power = _asked(pynvml.nvmlDeviceGetPowerUsage, handle)
        found.append(
            DeviceSample(
                name=name,
                memory_bytes=int(memory.used),
                power_w=power / 1000 if power is not None else None,
                clock_mhz=_asked(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
                throttled=_asked(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
            )
        )
    return found


def _cards() -> Iterator[tuple[str, Any, Any]]:
    """Name, memory and handle of each card that tells its memory; some that share it with the
    processor do not."""
    import pynvml

    for index in range(_asked(pynvml.nvmlDeviceGetCount) or 0 if _nvml() else 0):
        handle = _asked(pynvml.nvmlDeviceGetHandleByIndex, index)
        memory = _asked(pynvml.nvmlDeviceGetMemoryInfo, handle) if handle is not None else None
        if memory is not None:
            yield str(_asked(pynvml.nvmlDeviceGetName, handle) or "NVIDIA"), memory, handle


@functools.cache
def _nvml() -> bool:
    """Whether the driver is there; asked once, and left open until kvroom ends."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return False
    return True


def _asked(question: Callable[..., Any], *words: Any) -> Any:
    import pynvml

    try:
        return question(*words)
    except pynvml.NVMLError:
        return None


def family(pid: int | None) -> dict[int, str]:
    """The names of a process and of all below it, by their numbers; empty if it is gone."""
    import psutil

    found = {}
    with contextlib.suppress(psutil.Error):
        root = psutil.Process(pid) if pid is not None else None
        for process in [root, *root.children(recursive=True)] if root else []:
            with contextlib.suppress(psutil.Error):
                found[process.pid] = f"{process.name()} (pid {process.pid})"
    return found


def is_alive(pid: int) -> bool:
    """Whether a process runs, and is not only a corpse that nobody has collected."""
    import psutil

    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.Error:
        return False


def process_use(pid: int) -> tuple[int | None, float | None]:
    """Resident bytes and processor seconds of a process and all below it, None if it is gone."""
    import psutil

    try:
        root = psutil.Process(pid)
        family = [root, *root.children(recursive=True)]
    except psutil.Error:
        return None, None
    memory, cpu_s = 0, 0.0
    for process in family:
        with contextlib.suppress(psutil.Error):
            times = process.cpu_times()
            memory += process.memory_info().rss
            cpu_s += times.user + times.system
    return memory, round(cpu_s, 2)


def describe_machine() -> dict[str, Any]:
    """The machine as a run records it."""
    import psutil

    return {
        "system": platform.system(),
        "release": platform.release(),
        "python": platform.python_version(),
        "cpu": _cpu_name(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": psutil.virtual_memory().total,
        "load_average": load_average(),
    }


def load_average() -> float:
    """Mean number of runnable processes over the last minute."""
    return round(os.getloadavg()[0], 2)


def _cpu_name() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()
