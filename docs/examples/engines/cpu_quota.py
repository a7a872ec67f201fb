"""Run a program in a control group with a CPU quota: python cpu_quota.py llama-server … --cpu-quota 150.

The quota is in percent of one CPU. It needs a folder of control groups that you may write:
$CPU_QUOTA_GROUP, else /sys/fs/cgroup/cpu (version 1) or /sys/fs/cgroup (version 2).
"""

import os
import sys
from contextlib import suppress
from pathlib import Path

OPTION, PERIOD_US, NAME = "--cpu-quota", 100_000, "cpu-quota-"
words = sys.argv[1:]
if "--help" in words:
    print(f"{OPTION} PERCENT   CPU quota, in percent of one CPU", flush=True)
elif OPTION in words:
    at = words.index(OPTION)
    quota_us = PERIOD_US * int(words[at + 1]) // 100
    del words[at : at + 2]
    usual = Path("/sys/fs/cgroup/cpu")
    top = Path(os.environ.get("CPU_QUOTA_GROUP", usual if usual.is_dir() else usual.parent))
    for ended in top.glob(f"{NAME}*"):
        with suppress(OSError):  # its program still runs
            ended.rmdir()
    group = top / f"{NAME}{os.getpid()}"
    group.mkdir()
    if (group / "cpu.cfs_quota_us").exists():
        (group / "cpu.cfs_period_us").write_text(f"{PERIOD_US}")
        (group / "cpu.cfs_quota_us").write_text(f"{quota_us}")
    else:
        (group / "cpu.max").write_text(f"{quota_us} {PERIOD_US}")
    (group / "cgroup.procs").write_text(f"{os.getpid()}")
os.execvp(words[0], words)
