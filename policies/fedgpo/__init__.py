"""FedGPO: choose batch, epochs and participants of federated learning each round, for the least energy."""
