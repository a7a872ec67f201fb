"""The tuner's service under many agents and followers."""
