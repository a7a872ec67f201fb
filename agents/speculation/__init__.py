"""What an engine or a proxy needs to speculate safely by itself, beside the plan it follows."""
