"""Policies that divide a group's watts among its members."""
