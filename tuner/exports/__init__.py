"""Export studies to other dashboards. An export may be repeated, and adds only new data."""
