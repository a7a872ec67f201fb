"""Targets: sides set and measured together."""
