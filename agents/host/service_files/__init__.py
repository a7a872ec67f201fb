"""Operators' files about their programs: tables, knobs, and the places of printed numbers."""
