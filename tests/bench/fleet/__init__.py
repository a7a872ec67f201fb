"""A simulated fleet: many agents in one process, on simulated devices, at a real tuner."""
