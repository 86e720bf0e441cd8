"""What the machine is and how busy it is."""

import os
import platform
from pathlib import Path
from typing import Any

import msgspec


class Device(msgspec.Struct, frozen=True):
    """An accelerator of this machine."""

    name: str
    memory_bytes: int
    """All of it, as its driver reports."""


def devices() -> list[Device]:
    """The NVIDIA cards of this machine; none where there is no driver, or it does not answer."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return []
    try:
        handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
        return [
            Device(
                str(pynvml.nvmlDeviceGetName(handle)),
                int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            )
            for handle in handles
        ]
    except pynvml.NVMLError:
        return []
    finally:
        pynvml.nvmlShutdown()


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
