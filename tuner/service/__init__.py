"""The tuner's service: the HTTP API, the operators' verbs, and the periodic work."""
