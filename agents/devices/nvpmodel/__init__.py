"""Power modes of Jetson boards. Imports nothing, because the root process loads `knobs` from here."""
