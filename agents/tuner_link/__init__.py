"""The tuner seen from an agent."""
