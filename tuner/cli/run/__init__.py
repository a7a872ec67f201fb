"""`jouletune run`: tuner and agent as local processes, their studies, and the report."""
