"""What operators write of their programs: tables, the knobs in them, and where numbers are found."""
