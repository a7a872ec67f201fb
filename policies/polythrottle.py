"""PolyThrottle: least energy per query under a latency limit, by constrained Bayesian optimisation.

After Yan, Wang and Venkataraman, "PolyThrottle: Energy-efficient Neural Network Inference on Edge
Devices" (arXiv 2310.19991). From the paper: the aim, least energy per query while the latency limit
holds; the knobs, GPU, memory and CPU clock and batch size, searched together because they act on
latency together; the method, constrained Bayesian optimisation with few and noisy measurements of
about ten seconds.

Not public, and so our own choice, described where it is made (`tuner.bo`): surrogate, kernel and
noise model, acquisition function, first trials, number of trials, when to stop, and that a setting
is proven before it is deployed. EI × P(feasible) on logarithms is what neighbouring published work
uses (Mitra and Biessmann, arXiv 2407.05788).

Left out: the paper tunes the CPU clock in a phase of its own, as affecting pre-processing alone; we
search it with the others, since here it is the serving process's clock as well. Its scheduler for
fine-tuning beside inference is not part of this policy.
"""

from __future__ import annotations

from tuner.core import Past, Suggestion


class Polythrottle:
    """Searches the study's whole space for the best objective within its constraints."""

    def suggest(self, past: Past) -> Suggestion:
        """Return what to do next.

        Raises:
            InvalidInput: the space is too large to search.
            MetricUnavailable: no trial measured a metric that the study aims at or limits.
        """
        from tuner.bo.suggest import suggest  # torch comes with the first suggestion only

        return suggest(past)
