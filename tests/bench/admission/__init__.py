"""Fine-tuning admitted beside inference, judged: on made-up pairs, and on a real pair of processes."""
