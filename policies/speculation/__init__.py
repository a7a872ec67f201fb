"""Speculation: how many tokens to draft, and with which draft, by how many requests decode together."""
