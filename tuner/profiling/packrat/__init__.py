"""Packrat offline: plan from a measured profile, or profile, plan and compare on this machine."""
