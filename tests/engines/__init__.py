"""Engines that the benches measure and no user is served by: four models, GGUF files."""
