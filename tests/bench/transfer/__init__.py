"""How a fleet of like devices comes to hold a setting that others proved."""
