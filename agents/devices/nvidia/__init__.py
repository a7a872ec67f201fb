"""NVIDIA GPUs. Imports nothing: the root process loads `knobs` from below."""
