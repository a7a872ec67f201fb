"""Verbs about this machine: its services, sensors, controls and workloads."""
