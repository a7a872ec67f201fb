"""Reports of trials and holds from agents, and their plausibility checks."""
