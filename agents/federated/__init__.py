"""Federated learning as a tuning target: a federation is tuned round by round."""
