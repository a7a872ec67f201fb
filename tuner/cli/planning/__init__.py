"""Verbs that plan from tables of measurements, without a tuner."""
