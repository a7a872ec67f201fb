"""AMD and Intel GPUs. Imports nothing, because the root process loads `knobs` from this package."""
