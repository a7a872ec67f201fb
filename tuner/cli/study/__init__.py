"""Verbs about studies, their trials and results."""
