"""Attacks on our own processes, on loopback and bounded: `make attack`."""
