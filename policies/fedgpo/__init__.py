"""FedGPO: batch, epochs and participants of federated learning, round by round, for the least energy."""
