"""How a fleet of identical devices takes over a setting that others proved."""
