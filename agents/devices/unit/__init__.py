"""systemd services whose command line has flags to tune."""
