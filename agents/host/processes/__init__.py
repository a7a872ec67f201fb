"""Processes of this host: whose they are, started, signalled, measured and ended."""
