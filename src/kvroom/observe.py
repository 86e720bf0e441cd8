"""What the machine is and how busy it is."""

import contextlib
import functools
import os
import platform
from collections.abc import Callable
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
    import pynvml

    if not _nvml():
        return []
    handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
    return [
        Device(
            str(pynvml.nvmlDeviceGetName(handle)),
            int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
        )
        for handle in handles
    ]


def device_samples() -> list[DeviceSample]:
    """The NVIDIA cards now; what a card does not tell is left out."""
    import pynvml

    if not _nvml():
        return []
    found = []
    for index in range(pynvml.nvmlDeviceGetCount()):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        power = _asked(pynvml.nvmlDeviceGetPowerUsage, handle)
        found.append(
            DeviceSample(
                name=str(pynvml.nvmlDeviceGetName(handle)),
                memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
                power_w=power / 1000 if power is not None else None,
                clock_mhz=_asked(pynvml.nvmlDeviceGetClockInfo, handle, pynvml.NVML_CLOCK_SM),
                throttled=_asked(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons, handle),
            )
        )
    return found


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
