"""CPUs of servers and hosts. Imports nothing, because the root process loads `knobs` from this package."""
