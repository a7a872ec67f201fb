"""HTTP on loopback: our servers, and the client for programs on this host."""
