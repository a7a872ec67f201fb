"""`jouletune observe` as a process: its figures beside independent ones, and what it writes."""
