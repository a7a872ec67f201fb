"""A batch job's wish for a setting: leased for the job, restored after it."""
