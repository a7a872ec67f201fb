"""Budgets: random fleets, real agents and actuators, and the worth of division."""
