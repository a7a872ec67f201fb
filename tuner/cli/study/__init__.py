"""Verbs about one study, or about what studies found."""
