"""The tuner over HTTP: access, requests and responses."""
