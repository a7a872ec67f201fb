"""The operator's side: one file per noun. Importing it loads typer and nothing heavier."""
