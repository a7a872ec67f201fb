"""The actuator's client in the agent: one device's knobs and caps over a Unix socket."""
