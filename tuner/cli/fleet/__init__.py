"""Verbs about all of a tuner: its devices, events, tokens and database."""
