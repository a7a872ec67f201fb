"""Servers of language models: which engine answers at an address, and the service file that measures it."""
