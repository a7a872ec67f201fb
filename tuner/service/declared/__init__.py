"""Fleets declared in one file: its contents, the changes that it needs, and making these."""
