"""The centre of jouletune: vocabulary, optimiser, study loop, HTTP interface and command line."""
