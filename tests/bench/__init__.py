"""Benches: judge tuners and policies where the truth is known. `python -m tests.bench --help`."""
