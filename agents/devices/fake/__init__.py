"""Devices in a file, to try the actuator without hardware."""
