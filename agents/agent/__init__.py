"""The loop of one target, its trials, its power budget and its metrics."""
