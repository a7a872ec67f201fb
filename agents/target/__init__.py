"""What is set and measured as one."""
