"""Groups that share watts: declared, divided, shown."""
