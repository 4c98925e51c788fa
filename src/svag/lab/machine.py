"""Where a run ran: what belongs into its outcome and nowhere else."""

import os
import platform
import sys
from importlib.metadata import version
from typing import Any

import numpy as np
import torch


def versions() -> dict[str, str]:
    """Versions of what the numbers depend on."""
    return {
        "svag": version("svag"),
        "torch": torch.__version__,
        "numpy": np.__version__,
        "python": ".".join(map(str, sys.version_info[:3])),
    }


def hardware(device: torch.device) -> dict[str, Any]:
    """What it ran on; of a CUDA device of another machine the name is unknown."""
    return {
        "device": device.type,
        "name": _name(device),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
    }


def _name(device: torch.device) -> str:
    if device.type != "cuda":
        return _processor()
    return torch.cuda.get_device_name(device) if torch.cuda.is_available() else "unknown"


def _processor() -> str:
    """The processor's own name where the system tells it."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123  # not a file that pathlib should read whole
            for line in file:
                if line.startswith("model name"):
                    return line.partition(":")[2].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
