"""Style sheets, scripts, and plotly.js from its Python package; nothing is loaded from other hosts."""

from __future__ import annotations

import gzip
import hashlib
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from fastapi import APIRouter, Request
from fastapi.responses import FileResponse, Response

from tuner.core import ConfigError, NotFound
from tuner.service.http.bodies import BoundedRoute

OURS = Path(__file__).parent / "static"
PLOTLY = "plotly.min.js"
TYPES = {".js": "text/javascript", ".css": "text/css", ".svg": "image/svg+xml"}


def file_of(name: str) -> Path:
    """Return the path of an asset's file. Raises NotFound: there is no such asset."""
    served = {path.name: path for path in OURS.iterdir() if path.suffix in TYPES}
    if name == PLOTLY:
        served[PLOTLY] = plotly_file()
    if name not in served or not served[name].is_file():
        raise NotFound(f"there is no file {name}")
    return served[name]


def plotly_file() -> Path:
    """Return the path of plotly.js in its Python package. Raises ConfigError: it is not installed."""
    # The package is not imported, because the import takes a second and only one file is needed.
    spec = find_spec("plotly")
    folders = spec.submodule_search_locations if spec is not None else None
    file = Path(next(iter(folders or ["."]))) / "package_data" / "plotly.min.js"
    if not file.is_file():
        raise ConfigError("plotly is not installed", hint="pip install 'jouletune[tuner]'")
    return file


@cache
def tag(name: str) -> str:
    """Return a hash of an asset's content for its URL, so that browsers may cache the asset permanently."""
    return hashlib.sha256(file_of(name).read_bytes()).hexdigest()[:12]


@cache
def gzipped(file: Path) -> bytes:
    """Return an asset's content as gzip; plotly.js takes a second, so it is compressed once."""
    return gzip.compress(file.read_bytes(), mtime=0)


def assets() -> APIRouter:
    """Return the route of the assets."""
    router = APIRouter(route_class=BoundedRoute)

    @router.get("/assets/{name}")
    def asset(name: str, request: Request) -> Response:
        """Return one file."""
        file = file_of(name)
        cache_control = (
            "public, max-age=31536000, immutable" if request.query_params else "no-cache"
        )
        headers = {"Cache-Control": cache_control, "X-Content-Type-Options": "nosniff"}
        headers["Vary"] = "Accept-Encoding"
        kind = TYPES[file.suffix]
        if "gzip" not in request.headers.get("accept-encoding", ""):
            return FileResponse(file, media_type=kind, headers=headers)
        headers["Content-Encoding"] = "gzip"
        return Response(gzipped(file), media_type=kind, headers=headers)

    return router
