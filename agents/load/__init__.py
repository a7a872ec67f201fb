"""Requests sent, and what a service tells of those it got."""
