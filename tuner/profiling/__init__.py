"""Measure a profile once and plan from it: alternating windows, profiles, and their files."""
