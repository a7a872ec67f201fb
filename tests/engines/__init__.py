"""Engines for the benches, not for users: four models, GGUF files."""
