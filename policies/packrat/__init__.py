"""Packrat: several thin instances instead of a fat one, by how many items come at once.

After Bhardwaj, Phanishayee, Narayanan, Tarta and Stutsman, "Packrat: Automatic Reconfiguration for
Latency Minimization in CPU-based DNN Serving" (arXiv 2311.18174). `profile` is what one instance
alone takes, `profiling` says which points of it matter, `packing` finds the best instances for a
batch, `interference` corrects for running side by side; all that is plain arithmetic on tables.
`policy` does it in a live study.
"""

from policies.packrat.policy import Packrat

__all__ = ["Packrat"]
