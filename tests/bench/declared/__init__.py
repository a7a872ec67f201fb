"""Fleets declared in a file: the time to apply one, and its convergence after any interruption."""
