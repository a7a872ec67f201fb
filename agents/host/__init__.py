"""The host of an agent: its hardware, processes, HTTP servers and operators' files."""
