"""Following the load: plans, governors and oracles on simulated servers of language models."""
