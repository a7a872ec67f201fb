"""Pareto: the front of two objectives, by noisy expected hypervolume improvement."""
