"""Replayed tables, simulated servers and a fleet of phones, for the benches of a checkout."""
