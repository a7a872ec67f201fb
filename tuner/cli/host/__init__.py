"""Verbs about the machine one is at: its services, sensors, controls and workloads."""
