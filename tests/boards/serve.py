"""A board as a process: `python -m tests.boards.serve NAME FOLDER` mounts it and prints its HTTP port.

Over HTTP it is the workload, too (`GET /config`, `POST /config`, `GET /metrics`), and what is done to it
behind the kernel's back: `GET /board`, `POST /board`.
"""

from __future__ import annotations

import errno
import json
import os
import stat
import sys
import threading
import time
import zlib
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import mfusepy

from tests.boards.board import Board
from tests.boards.kernel import Node, Refused
from tests.boards.machine import BATCHES
from tests.boards.mounted import CACHED_S
from tests.boards.trees import LAYOUTS, board
from tests.integration.spoken import Spoken

MODULES = "/sys/module/"
REFUSALS = {
    "refuse": errno.EIO,
    "readonly": errno.EROFS,
    "locked": errno.EACCES,
    "nodata": errno.ENODATA,
}


class Files(mfusepy.Operations):  # type: ignore[misc]
    """The board's files. An opened file keeps its content of the first read."""

    use_ns = True

    def __init__(self, shown: Board, lock: threading.RLock) -> None:
        self.board, self._alone = shown, lock
        self.began = time.monotonic()
        self._inside: dict[str, list[str]] = {}
        for file in (*shown.nodes, *shown.links):
            for folder in Path(file).parents:
                self._inside.setdefault(str(folder), []).append(file)
        self._opened: dict[int, bytes] = {}
        self._next = 0

    def late(self, path: str) -> bool:
        """Return whether a path belongs to the GPU's node, which does not exist yet."""
        layout = LAYOUTS.get(self.board.name)
        if layout is None or f"/devfreq/{layout.gpu}" not in path:
            return False
        return time.monotonic() - self.began < layout.late_s

    def node(self, path: str) -> Node | None:
        """Return the file at a path; None if it does not exist, or not yet."""
        if self.late(path):
            return None
        node = None if self.board.faults.get(path) == "gone" else self.board.nodes.get(path)
        return None if node and node.refusal() == errno.ENOENT else node

    def folder(self, path: str) -> set[str]:
        """Return the names in a folder."""
        inside = path.rstrip("/") + "/"
        there = filter(self.there, self._inside.get(path, ()))
        return {file[len(inside) :].split("/")[0] for file in there}

    def there(self, path: str) -> bool:
        """Return whether a file or a link exists."""
        return bool(self.node(path) or self.leads(path))

    def leads(self, path: str) -> str:
        """Return a symbolic link's target; empty if there is no link, or no target yet."""
        target = "" if self.late(path) else self.board.links.get(path, "")
        full = os.path.normpath(f"{os.path.dirname(path)}/{target}")  # noqa: PTH120 - of the mounted root
        return target if any(map(self.node, self._inside.get(full, ()))) else ""

    def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
        # A file keeps its inode number while its driver is loaded, as under kernfs.
        return {"st_ino": zlib.crc32(path.encode()), **self._kind(path)}

    def _kind(self, path: str) -> dict[str, Any]:
        with self._alone:
            about = {"st_ino": self.number(path), "st_nlink": 1, "st_size": 4096}
            if node := self.node(path):
                return {**about, "st_mode": stat.S_IFREG | node.mode}
            if self.leads(path):
                return {**about, "st_mode": stat.S_IFLNK | 0o777}
            if path == "/" or any(map(self.there, self._inside.get(path, ()))):
                return {**about, "st_mode": stat.S_IFDIR | 0o755, "st_nlink": 2}
        raise mfusepy.FuseOSError(errno.ENOENT)

    def number(self, path: str) -> int:
        """Return a file's inode number: that of a policy changes with every load of its driver."""
        load = self.board.loads if path.startswith((self.board.moving, MODULES)) else 0
        return zlib.crc32(path.encode()) + (load << 32) + 1

    def init_with_config(self, conn: object, config: Any) -> None:  # noqa: ANN401
        config.use_ino, config.attr_timeout, config.entry_timeout = 1, CACHED_S, CACHED_S

    def readdir(self, path: str, fh: int) -> list[tuple[str, dict[str, int], int]]:
        with self._alone:
            names = [".", "..", *sorted(self.folder(path))]
            # glibc skips a name whose inode number is 0.
            return [
                (name, {"st_ino": self.number(f"{path}/{name}"), "st_mode": 0}, 0) for name in names
            ]

    def readlink(self, path: str) -> str:
        with self._alone:
            return self.leads(path)

    def open(self, path: str, flags: int) -> int:
        self._next += 1
        return self._next

    def release(self, path: str, fh: int) -> int:
        self._opened.pop(fh, None)
        return 0

    def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
        with self._alone:
            if fh not in self._opened:
                self._opened[fh] = self._told(path)
            return self._opened[fh][offset : offset + size]

    def _told(self, path: str) -> bytes:
        fault, node = self.board.faults.get(path), self.node(path)
        if node is None or fault == "gone":
            raise mfusepy.FuseOSError(errno.ENOENT)
        if str(fault) in ("refuse", "nodata"):
            raise mfusepy.FuseOSError(REFUSALS[str(fault)])
        self.board.machine.advance()
        try:
            return f"{fault['stuck']}\n".encode() if isinstance(fault, dict) else node.read()
        except Refused as refused:
            raise mfusepy.FuseOSError(refused.errno or errno.EINVAL) from None

    def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
        with self._alone:
            fault, node = self.board.faults.get(path), self.node(path)
            if node is None or str(fault) in REFUSALS:
                raise mfusepy.FuseOSError(REFUSALS.get(str(fault), errno.EIO))
            self.board.machine.advance()
            try:
                if not isinstance(fault, dict):
                    node.write(data.decode())
            except Refused as refused:
                raise mfusepy.FuseOSError(refused.errno or errno.EINVAL) from None
            return len(data)

    def truncate(self, path: str, length: int, fh: int | None = None) -> int:
        return 0


class Door(ThreadingHTTPServer):
    """The board's HTTP side."""

    daemon_threads = True
    board: Board
    lock: threading.RLock


class Handler(Spoken):
    """One connection."""

    server: Door

    def do_GET(self) -> None:
        with self.server.lock:
            machine = self.server.board.machine
            if self.path == "/config":
                return self.answer(200, {"batch": machine.batch})
            if self.path == "/board":
                machine.advance()
                status = {
                    "energy_j": machine.energy_j,
                    "items": machine.items,
                    "celsius": machine.celsius,
                }
                return self.answer(200, {**status, "altered": self.server.board.altered})
            text = machine.metrics().encode()
        self.send(200, text)

    def do_POST(self) -> None:
        request: dict[str, Any] = json.loads(self.body())
        with self.server.lock:
            board, machine = self.server.board, self.server.board.machine
            machine.advance()
            if self.path == "/config":
                if request.get("batch") not in BATCHES:
                    return self.answer(422, {})
                machine.batch = request["batch"]
                return self.answer(200, {"batch": machine.batch})
            if "faults" in request:
                board.faults.update(request["faults"])
            if request.get("reset"):
                board.reset()
            if "cap" in request:
                board.cap(request["cap"])
            for deed in ("note", "put"):
                if deed in request:
                    getattr(board, deed)(Path(request[deed]))
            for gpu in board.gpus:
                vars(gpu).update(request.get("gpu", {}))
                if request.get("gpu_reset"):
                    gpu.lose()
            for deed in ("restart_counters", "reload", "resume"):
                if request.get(deed):
                    getattr(board, deed)()
            if request.get("manual"):
                machine.take_by_hand()
            for path, text in request.get("write", {}).items():
                board.nodes[path].write(text)
            if "pass_s" in request:
                machine.pass_s(request["pass_s"])
            self.answer(200, {})


def main(name: str, folder: Path) -> None:
    """Mount a board, print the port on standard output, and serve until unmounted."""
    shown, lock = board(name), threading.RLock()
    door = Door(("127.0.0.1", 0), Handler)
    door.board, door.lock = shown, lock
    threading.Thread(target=door.serve_forever, daemon=True).start()
    files = Files(shown, lock)
    sys.stdout.write(f"{door.server_address[1]}\n")
    sys.stdout.flush()
    mfusepy.FUSE(
        files, str(folder), foreground=True, direct_io=True, nothreads=True,
        default_permissions=True, use_ino=True, allow_other=os.geteuid() == 0,
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
