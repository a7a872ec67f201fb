"""Metrics for Prometheus: counters of this process, and the fleet as it is stored."""
