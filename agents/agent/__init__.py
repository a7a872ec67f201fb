"""The loop of one target, and putting it back by hand."""
