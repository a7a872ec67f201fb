"""Speculation judged: on measured sweeps of others."""
