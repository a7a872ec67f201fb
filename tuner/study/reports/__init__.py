"""What agents report of trials and holds, and whether it can be true."""
