"""A package as pip would have installed it, but made in a test's own folder."""

from __future__ import annotations

from pathlib import Path


def install(folder: Path, name: str, entry_points: str, source: str) -> None:
    """Write a package of one module into a folder, which is then to be put on the path."""
    (folder / f"{name}.py").write_text(source)
    about = folder / f"{name}-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (about / "entry_points.txt").write_text(entry_points)
