"""Packrat: several small instances instead of a large one, by the number of items that arrive together.

After Bhardwaj, Phanishayee, Narayanan, Tarta and Stutsman, "Packrat: Automatic Reconfiguration for
Latency Minimization in CPU-based DNN Serving" (arXiv 2311.18174). `profile` has the times of one
instance alone, `profiling` selects the points of the profile that matter, `packing` computes the best
instances for a batch, and `interference` corrects for instances that run side by side. These modules are
plain arithmetic on tables. `policy` uses them in a live study.
"""

from policies.packrat.policy import Packrat

__all__ = ["Packrat"]
