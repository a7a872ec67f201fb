"""CPUs of servers and hosts. Imports nothing: the root process loads `knobs` from below."""
