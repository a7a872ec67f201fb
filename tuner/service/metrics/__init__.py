"""What Prometheus is told: counters of this process, and the fleet as it is stored."""
