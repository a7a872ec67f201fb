"""Load generation, and the metrics that a service reports about the requests it received."""
