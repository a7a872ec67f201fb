"""The first hour on a GPU host: a kit that runs from a folder, without checkout and package index."""
