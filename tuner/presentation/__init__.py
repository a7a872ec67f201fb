"""Studies, devices and numbers in words: one way to say them, on a terminal and in a browser."""
