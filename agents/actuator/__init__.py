"""The root process: it alone writes to hardware."""
