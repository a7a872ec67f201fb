"""A fleet that is not there: many agents of one process, on simulated devices, at a real tuner."""
