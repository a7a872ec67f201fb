"""Print the lowest releases of the web stack that pyproject.toml allows, as pip takes them."""

import re
import sys
import tomllib
from pathlib import Path

OLD = ("httpx", "httpcore", "certifi")
WEB = ("fastapi", "starlette", "uvicorn", "h11", "httpx2", "httpcore2", "httptools")

project = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text())["project"]
extras = project["optional-dependencies"]
asked = [*project["dependencies"], *extras["tuner"], *extras["reference"]]
floors = dict(found.groups() for text in asked if (found := re.match(r"(\w+)>=([\d.]+)", text)))
# httpx2 names one release of its transport.
floors["httpcore2"] = floors["httpx2"]
# The test client of the oldest starlette has its former name.
floors |= {"httpx": "0.28.1", "httpcore": "1.0.9", "certifi": "2026.10.18"}
sys.stdout.write(" ".join(f"{name}=={floors[name]}" for name in (*WEB, *OLD)) + "\n")
