"""Jobs of a real Slurm on this host, with the GPUs of the fake NVML."""
