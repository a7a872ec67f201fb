"""Targets: sides that are set and measured together."""
