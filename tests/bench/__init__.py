"""Benches: judge tuners and policies against known true values. `python -m tests.bench --help`."""
