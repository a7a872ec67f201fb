"""One study's life."""
