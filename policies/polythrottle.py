"""PolyThrottle: least energy per query under a latency limit, over hardware clocks and batch size.

Source: Yan, Wang and Venkataraman, "PolyThrottle: Energy-efficient Neural Network Inference on Edge
Devices" (arXiv 2310.19991), section 5: minimise energy per query subject to the latency SLO, an
unknown and noisy function of GPU clock, memory clock and batch size, by constrained Bayesian
optimisation. The paper's kernel, acquisition, start and stopping rules are not public: ours are in
`tuner.bo` and are our own choice. Left out here: the paper tunes the CPU clock in a phase of its own,
we search all knobs jointly; and the admission of fine-tuning beside inference.
"""

from __future__ import annotations

from tuner.core import Past, Suggestion


class Polythrottle:
    """Constrained Bayesian optimisation over all knobs of the study."""

    def suggest(self, past: Past) -> Suggestion:
        """Return the next setting to try, or the plan to hold.

        Raises:
            InvalidInput: the space is too large to enumerate.
        """
        from tuner.bo.suggest import suggest  # torch comes in with the first suggestion only

        return suggest(past)
