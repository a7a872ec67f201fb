"""Groups of devices that share watts: declaration, division, views."""
