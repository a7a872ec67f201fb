"""Studies for the dashboards of others: each export may be repeated, and adds only what is new."""
