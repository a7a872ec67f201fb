"""An nvidia-smi and a modprobe over the fake NVML."""

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


MODPROBE = """#!{python}
import ctypes
nvml = ctypes.CDLL("libnvidia-ml.so.1")
for name in ("lock_max", "mem_lock"):
    nvml.fakenvml_set(0, name.encode(), ctypes.c_double(0.0))
"""
"""A driver that is loaded again has no locks."""


def smi(folder: Path) -> Path:
    """Write both; return the folder for PATH."""
    programs = folder / "bin"
    programs.mkdir()
    for name, text in (("nvidia-smi", SMI), ("modprobe", MODPROBE)):
        file = programs / name
        file.write_text(text.format(python=sys.executable))
        file.chmod(0o755)
    return programs
