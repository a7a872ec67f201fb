"""Several tuners on one database, and what is done to them."""
