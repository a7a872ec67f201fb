"""The memory allocators that a worker process can be started with.

Which one is best depends on model, batch and machine, so it is a knob. Packrat's authors measured with
tcmalloc (arXiv 2311.18174, their source); the settings of jemalloc are ours.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

GLIBC, GLIBC_KEEP = "glibc", "glibc-keep"
"""The C library's default, and the same configured to keep freed memory (`tuner.process_memory.keep`)."""
LIBRARIES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "tcmalloc": ("libtcmalloc_minimal.so.4", "libtcmalloc.so.4"),
        "jemalloc": ("libjemalloc.so.2",),
    }
)
"""The libraries to preload; the first one installed is used."""
FOLDERS = ("usr/local/lib", "usr/lib", "usr/lib64", "lib", "lib64")
KEPT = "oversize_threshold:0,dirty_decay_ms:-1,muzzy_decay_ms:-1"
"""By default jemalloc returns pieces above 8 MiB to the system at once and others within ten seconds,
which made it the slowest of all. With these values it keeps them until a purge."""

Environment = Mapping[str, str]


def allocators(
    root: Path = Path("/"), outside: Environment | None = None
) -> Mapping[str, Environment]:
    """Return the installed allocators with the environment that each needs, the default first.

    Empty if the C library is not glibc, or if the environment (`outside`, by default this process's
    environment) already preloads or configures an allocator, as that choice stays.
    """
    around = os.environ if outside is None else outside
    chosen = {"LD_PRELOAD", "MALLOC_CONF"} & set(around)
    if not hasattr(ctypes.CDLL(None), "mallopt") or chosen or any("MALLOC_" in n for n in around):
        return {}
    environments: dict[str, Environment] = {GLIBC_KEEP: {}, GLIBC: {}}
    for name, files in LIBRARIES.items():
        library = next((path for file in files if (path := _installed(file, root))), None)
        if library is not None:
            settings = {"MALLOC_CONF": KEPT} if name == "jemalloc" else {}
            environments[name] = {"LD_PRELOAD": str(library), **settings}
    return environments


def _installed(file: str, root: Path) -> Path | None:
    """Return the path of an installed library, also in a folder of the machine's architecture."""
    places = (
        path for folder in FOLDERS for path in (root / folder, *(root / folder).glob("*-gnu*"))
    )
    return next((place / file for place in places if (place / file).is_file()), None)
