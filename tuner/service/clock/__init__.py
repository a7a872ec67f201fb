"""What a tuner does by the clock, and how it tells that it lives."""
