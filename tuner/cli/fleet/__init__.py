"""Verbs about a whole tuner: its devices, events, tokens and database."""
