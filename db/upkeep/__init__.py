"""Upkeep of a database: backup and restore, checks, and deletion of old rows."""
