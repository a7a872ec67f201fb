"""Fleets declared in one file: what it says, what that would change, and the changes made."""
