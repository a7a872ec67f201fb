"""Packages: built, installed without a checkout, and tested there."""
