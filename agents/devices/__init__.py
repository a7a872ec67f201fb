"""Devices, a module or package each. Imports nothing: the root process loads drivers from below."""
