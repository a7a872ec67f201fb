"""Federated learning as a target: a federation is tuned round by round."""
