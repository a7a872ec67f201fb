"""systemd services with tunable flags on their command line."""
