"""The first hour on a GPU host: what runs there from a folder, with no checkout and no package index."""
