"""Runnable torch programs, started as processes of their own; the agent never imports them."""
