"""Fine-tuning beside inference: a job that is let run, paced or stopped so that the latency limit holds."""
