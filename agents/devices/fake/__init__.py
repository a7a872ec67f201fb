"""Devices that exist only in a file, for trying out the actuator without hardware."""
