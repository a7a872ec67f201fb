"""Suggestions worked out elsewhere: by processes of this machine, or on a Ray cluster."""
