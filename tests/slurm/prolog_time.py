"""`python -m tests.slurm.prolog_time [N]`: the Prolog's time with a wish and without, on fake GPUs.

Prints medians in ms, and their ratio to the start of a bare interpreter. Needs root, no Slurm.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.nvml.fake import FakeNvml, build
from tests.slurm.cluster import slurm_node

LIMIT_MS = 200.0
WISH = "jouletune:gpu.power_limit_w=200"


def main(count: int) -> int:
    """Measure `count` prologs of each kind in turns; return 1 if a wish takes more than the limit."""
    seconds: dict[str, list[float]] = {"bare interpreter": [], "other comment": [], "wish": []}
    with TemporaryDirectory() as name:
        folder = Path(name)
        nvml = FakeNvml(build(folder), folder / "nvml.state", manual=False, root_only=0.0)
        with slurm_node(folder, nvml, slurm=False) as node:
            for job in range(1, count + 1):
                began = time.monotonic()
                subprocess.run([sys.executable, "-I", "-c", ""], check=True)
                seconds["bare interpreter"].append(time.monotonic() - began)
                seconds["other comment"].append(node.script("prolog", "a comment", job))
                seconds["wish"].append(node.script("prolog", WISH, job))
                assert node.limits()[0] == 200.0
                node.script("epilog", "", job)
    bare = statistics.median(seconds["bare interpreter"])
    for kind, values in seconds.items():
        middle = statistics.median(values)
        print(f"{kind:17} {1000.0 * middle:6.1f} ms  {middle / bare:5.2f} x  (n = {len(values)})")
    return int(1000.0 * statistics.median(seconds["wish"]) > LIMIT_MS)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if sys.argv[1:] else 31))
