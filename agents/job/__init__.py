"""A batch job's requested setting: leased for the job, restored after it."""
