"""Periodic work of a tuner, and its reports that it is alive."""
