"""The web pages of the tuner, rendered on the server and kept current by the stream of events."""
