"""Requests sent, and what a service reports about those it got."""
