"""An app of Flower's, to run and to start from."""
