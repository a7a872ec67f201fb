"""Packrat: several small instances instead of a large one, by the number of items that arrive together.

After Bhardwaj, Phanishayee, Narayanan, Tarta and Stutsman, "Packrat: Automatic Reconfiguration for
Latency Minimization in CPU-based DNN Serving" (arXiv 2311.18174). `profile` has the times of one
instance alone, `profiling` selects the points of it that matter, `packing` computes the best
instances for a batch, `interference` corrects for running side by side; all that is plain
arithmetic on tables. `policy` runs it in a live study.
"""

from policies.packrat.policy import Packrat

__all__ = ["Packrat"]
