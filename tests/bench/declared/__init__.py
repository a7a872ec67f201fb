"""Fleets declared in a file: how long applying takes, and that it converges from wherever it ends."""
