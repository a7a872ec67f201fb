"""A made-up federation of phones: what they take, what they have, and a real task to train."""
