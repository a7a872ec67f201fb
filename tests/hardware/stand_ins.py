"""An nvidia-smi over the fake NVML."""

from __future__ import annotations

import sys
from pathlib import Path

SMI = '''#!{python}
import ctypes, time
nvml = ctypes.CDLL("libnvidia-ml.so.1")
def figure(name):
    value = ctypes.c_double()
    nvml.fakenvml_get(0, name.encode(), ctypes.byref(value))
    return value.value
print(f"""
==============NVSMI LOG==============

Timestamp                                 : {{time.ctime()}}
Attached GPUs                             : 1
GPU 00000000:00:00.0
    Persistence Mode                      : Enabled
    GPU Power Readings
        Instantaneous Power Draw          : {{figure("power_w"):.2f}} W
        Current Power Limit               : {{figure("limit_w"):.2f}} W
    Clocks
        SM                                : {{figure("ran_mhz"):.0f}} MHz
    Locked Clocks
        Graphics                          : {{figure("lock_max"):.0f}} MHz
        Memory                            : {{figure("mem_lock"):.0f}} MHz
    Temperature
        GPU Current Temp                  : {{figure("celsius"):.0f}} C""")
'''
"""The layout of `-q` is that of NVIDIA's manual page of nvidia-smi; the locks are added for tests."""


def smi(folder: Path) -> Path:
    """Write an nvidia-smi; return the folder for PATH."""
    programs = folder / "bin"
    programs.mkdir()
    file = programs / "nvidia-smi"
    file.write_text(SMI.format(python=sys.executable))
    file.chmod(0o755)
    return programs
