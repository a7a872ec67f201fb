"""The confirmed setting, kept on the host."""
