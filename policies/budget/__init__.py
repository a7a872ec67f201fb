"""Division of a group's watts among its members."""
