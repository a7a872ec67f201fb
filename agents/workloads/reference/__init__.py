"""Torch programs that run as separate processes; the agent never imports them."""
