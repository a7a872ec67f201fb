"""The power modes of Jetson boards. Imports nothing: the root process loads `knobs` from below."""
