"""Texts, figures and charts of studies and devices, the same on a terminal and in a browser."""
