"""Constrained Bayesian optimisation: the only BoTorch code. Import its modules, not this package."""
