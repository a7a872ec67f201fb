"""`python -m tests.fuzz N SEED`: hosts whose files and GPUs whose answers are wrong, and what crashes."""
