"""Fine-tuning beside inference: run, pace or pause a job so that the latency limit holds."""
