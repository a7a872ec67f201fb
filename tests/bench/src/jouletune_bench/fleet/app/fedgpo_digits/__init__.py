"""An example app of Flower: a hundred clients that differ train to read digits."""
