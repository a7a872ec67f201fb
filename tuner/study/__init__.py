"""The life of one study."""
