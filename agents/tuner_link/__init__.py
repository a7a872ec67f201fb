"""The agent's client of the tuner."""
