"""A real vLLM on the host's CPU, with a small model of random weights."""
