"""What is measured once so that a plan can be made of it: windows in turns, profiles, their files."""
