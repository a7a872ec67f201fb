"""Suggestions computed outside the tuner's process: by child processes, or on a Ray cluster."""
