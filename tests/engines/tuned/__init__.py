"""Inference engines from the package index, each tuned once for real: `make test-engines`."""
