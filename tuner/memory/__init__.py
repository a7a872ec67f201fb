"""The fleet's memory: posteriors of finished studies, and their use by new ones."""
