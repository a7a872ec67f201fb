"""What an operator can ask of a tuner, in one table: see `tuner.verbs.table`."""
