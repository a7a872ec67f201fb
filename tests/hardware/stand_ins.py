"""Stand-ins on a GPU host with the fake NVML: a torch that loads its GPU, and an nvidia-smi."""

from __future__ import annotations

import sys
from pathlib import Path

TORCH = """
import ctypes, threading, time

__version__ = "0+stand-in"
float16 = "float16"
nvml = ctypes.CDLL("libnvidia-ml.so.1")
nvml.fakenvml_set.argtypes = (ctypes.c_uint, ctypes.c_char_p, ctypes.c_double)
ended = 0.0

def busy(value):
    nvml.fakenvml_set(0, b"busy", value)

def rest():
    while True:
        time.sleep(0.005)
        if time.monotonic() - ended > 0.01:
            busy(0.0)

def randn(*shape, **kind):
    return shape

def matmul(a, b):
    global ended
    ended = time.monotonic() + 0.004
    busy(1.0)
    time.sleep(0.004)

class cuda:
    @staticmethod
    def is_available():
        threading.Thread(target=rest, daemon=True).start()
        return True

    @staticmethod
    def get_device_name(index):
        return "stand-in"

    @staticmethod
    def synchronize():
        pass
"""
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


def stand_ins(folder: Path) -> tuple[Path, Path]:
    """Write a torch and an nvidia-smi; return the folders for PYTHONPATH and PATH."""
    torch, programs = folder / "python", folder / "bin"
    torch.mkdir()
    programs.mkdir()
    (torch / "torch.py").write_text(TORCH)
    smi = programs / "nvidia-smi"
    smi.write_text(SMI.format(python=sys.executable))
    smi.chmod(0o755)
    return torch, programs
