"""Judgements of the speculation policy."""
