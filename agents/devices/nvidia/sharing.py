"""Other users of a GPU, whose joules are counted as a whole.

Source: NVIDIA's NVML API reference (MIG mode, virtualization mode, compute processes, MPS clients): energy
and power are the board's, not an instance's or a process's. Ours: processes of one control group count as
one user: a server with workers is one, two containers are two.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pynvml

from agents.devices.nvidia.nvml import Gpu
from agents.host.machine import contained
from agents.host.processes.ownership import SERVERS
from agents.host.processes.process_table import ProcessTable


def shared_by(gpu: Gpu, root: Path) -> str:
    """Return the reasons why a GPU's joules are shared, for messages; empty if they are not.

    Raises:
        ActuationError, DeviceLost: it does not answer.
    """
    return "; ".join(_reasons(gpu, root))


def _reasons(gpu: Gpu, root: Path) -> Iterator[str]:
    """Yield each reason why the GPU's joules are shared."""
    modes, _ = gpu.query("MIG mode", pynvml.nvmlDeviceGetMigMode)
    if modes and modes[0]:
        yield "MIG is on: the energy is that of the whole board with all instances"
    virtual, _ = gpu.query("virtualization", pynvml.nvmlDeviceGetVirtualizationMode)
    if virtual == pynvml.NVML_GPU_VIRTUALIZATION_MODE_VGPU:
        yield "it is a vGPU: the board also serves other guests"
    clients, _ = gpu.query("MPS clients", pynvml.nvmlDeviceGetMPSComputeRunningProcesses)
    if clients:
        yield f"MPS shares it; processes now: {len(clients)}"
    processes, _ = gpu.query("processes", pynvml.nvmlDeviceGetComputeRunningProcesses)
    table = ProcessTable(root)
    pids = {int(process.pid) for process in processes or ()}
    pids = {pid for pid in pids if not table.program(pid).startswith(SERVERS)}
    # The service or container of a process, else its control groups; None if it is invisible.
    groups = [table.service(pid) or " ".join(table.groups(pid)) or None for pid in pids]
    invisible, distinct = groups.count(None), {group for group in groups if group is not None}
    if invisible and (distinct or (invisible > 1 and contained(root))):
        yield f"{invisible} more invisible processes compute on it"
    if len(distinct) > 1:
        yield f"processes of {len(distinct)} services or containers compute on it"
