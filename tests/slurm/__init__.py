"""Jobs of a real Slurm on this host, their GPUs those of the fake NVML."""
