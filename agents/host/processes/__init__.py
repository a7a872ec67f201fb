"""Processes of this host: their owners, start, signals, CPU time and end."""
