"""Holds: the confirmed setting, enforced and watched on the host."""
