"""The tuner's faces: HTTP, operators' verbs, and the work by the clock."""
