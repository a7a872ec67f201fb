"""The requests that an operator can send to a tuner: see `tuner.verbs.table`."""
