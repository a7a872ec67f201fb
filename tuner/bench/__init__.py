"""Tuners judged on measured surfaces: every one a `Policy`, every number against the true table.

Which settings are good is known here, so what a study deploys can be scored; nothing is interpolated.
"""
