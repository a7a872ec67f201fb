"""Servers of language models: detect the engine at an address, and write its service file."""
