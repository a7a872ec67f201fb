"""Builds the real llama-server from the sources in the PyPI package llama-cpp-python, into a cache.

`python -m tests.llama.build [VERSION …]`: the first build of a version takes minutes, later ones none.
The cache is `$JOULETUNE_LLAMA_CACHE`, else `jouletune/llama` in the user's cache folder. Builds stay there.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

SOURCES = {
    "0.3.36": "832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e",
    "0.3.16": "34ed0f9bd9431af045bb63d9324ae620ad0536653740e9bb163a2e1fcb973be6",
}
"""Version of the package to its SHA-256. 0.3.36 is the newest; 0.3.16 still has lengths per request."""
OPTIONS = {
    "CMAKE_BUILD_TYPE": "Release",
    "BUILD_SHARED_LIBS": "OFF",
    "LLAMA_CURL": "OFF",
    "LLAMA_OPENSSL": "OFF",
    "LLAMA_BUILD_TESTS": "OFF",
    "LLAMA_BUILD_EXAMPLES": "OFF",
    "LLAMA_BUILD_UI": "OFF",
}
NEEDED = ("cmake", "c++")
LOG_TAIL = 500


class Unbuildable(Exception):
    """llama-server cannot be built here; the message has the reason."""


def cache() -> Path:
    """Return the folder for sources and binaries."""
    named = os.environ.get("JOULETUNE_LLAMA_CACHE")
    if named:
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "jouletune" / "llama"


def llama_server(version: str) -> Path:
    """Return the built server of a version; build it first if it is missing.

    Raises:
        Unbuildable: a compiler, cmake or the network is missing, or the build fails.
    """
    folder = cache() / version
    server = folder / "build" / "bin" / "llama-server"
    with _alone(folder):
        if server.exists():
            return server
        missing = [name for name in NEEDED if shutil.which(name) is None]
        if missing:
            raise Unbuildable(f"{' and '.join(missing)} not found; install cmake and g++")
        source = folder / "source"
        if not source.exists():
            _fetch(version, folder)
        generator = ["-G", "Ninja"] if shutil.which("ninja") else []
        options = [f"-D{name}={value}" for name, value in OPTIONS.items()]
        tree = source / "vendor" / "llama.cpp"
        _run(["cmake", *generator, "-S", str(tree), "-B", str(folder / "build"), *options])
        jobs = str(len(os.sched_getaffinity(0)))
        _run(["cmake", "--build", str(folder / "build"), "--target", "llama-server", "-j", jobs])
    return server


def _fetch(version: str, folder: Path) -> None:
    """Download and unpack the sources, whole or not at all."""
    wanted = folder / "wanted.txt"
    wanted.write_text(f"llama-cpp-python=={version} --hash=sha256:{SOURCES[version]}\n")
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    pip += [
        "--no-deps",
        "--no-binary",
        "llama-cpp-python",
        "--require-hashes",
        "--dest",
        str(folder),
    ]
    _run([*pip, "-r", str(wanted)])
    archive = folder / f"llama_cpp_python-{version}.tar.gz"
    unpacked = folder / "unpacked"
    shutil.rmtree(unpacked, ignore_errors=True)
    with tarfile.open(archive) as tar:
        tar.extractall(unpacked, filter="data")
    (unpacked / f"llama_cpp_python-{version}").rename(folder / "source")
    unpacked.rmdir()
    archive.unlink()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        output = (done.stdout + done.stderr).strip()[-LOG_TAIL:]
        raise Unbuildable(f"{' '.join(command[:3])} … failed: {output}")


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time build a version."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def main() -> int:
    """Build the named versions, by default all, and print their paths."""
    for version in sys.argv[1:] or SOURCES:
        try:
            print(llama_server(version), flush=True)
        except Unbuildable as error:
            print(f"{version}: {error}", file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
