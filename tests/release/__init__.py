"""Packages: built, installed where there is no checkout, and tried there."""
