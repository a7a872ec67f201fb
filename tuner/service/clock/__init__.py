"""What a tuner does by the clock, and how it reports that it lives."""
