"""`python -m tests.fuzz N SEED`: crashes on hosts with wrong files and GPUs with wrong answers."""
