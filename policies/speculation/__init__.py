"""Speculation: choose the number of drafted tokens and the draft, by the requests that decode together."""
