"""The machine around an agent."""
