"""Judges policies on federations: energy and time to the same accuracy, against fixed settings."""
