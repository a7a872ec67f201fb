"""What browsers are shown: pages made on the server, live by the stream of events."""
