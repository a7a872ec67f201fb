"""A made-up federation of phones: their costs, their data, and a real task to train."""
