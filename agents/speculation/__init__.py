"""Client, meter and fallback for an engine or proxy that decodes speculatively."""
