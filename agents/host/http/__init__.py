"""HTTP on loopback, from both ends."""
