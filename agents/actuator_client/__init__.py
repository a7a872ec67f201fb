"""The actuator as an agent sees it: one device's knobs and caps behind a Unix socket."""
