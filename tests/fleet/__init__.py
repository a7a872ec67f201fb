"""Several tuners on one database, and their failures."""
