"""Export studies and windows to others' systems."""
