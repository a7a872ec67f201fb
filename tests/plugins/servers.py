"""The real programs of the examples: started with new data in a folder, and ended afterwards."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import httpx2
import pytest

from tests import postgres
from tests.plugins.examples import Example
from tests.processes import reserved_port, run_to_end, until

WORDS = ("the", "least", "energy", "while", "your", "latency", "limits", "hold", "measured")


@dataclass(frozen=True)
class Running:
    """A running example: its title on the page, its file, and its environment variables."""

    title: str
    file: Path
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def kind(self) -> str:
        return "command" if "\nrun = " in self.file.read_text().partition("\n[")[0] else "service"

    @property
    def options(self) -> list[str]:
        """The options of `jouletune run` on the page, with the path of this workload's file."""
        (words,) = [words for words in Example(self.title).commands if words[1] == "run"]
        at = words.index("--workload")
        given = words[2:at] + words[at + 2 :]
        return ["--workload", f"{self.kind}:{self.file}", *given]


def needed(*programs: str) -> None:
    """Skip where a program is not installed."""
    missing = [name for name in programs if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed here: {', '.join(missing)}")


def answers(url: str) -> Callable[[], bool]:
    """Return a function that reports whether a service answers."""

    def asked() -> bool:
        with suppress(httpx2.TransportError):
            return httpx2.get(url).is_success
        return False

    return asked


@contextmanager
def fastapi(folder: Path) -> Iterator[Running]:
    example, port = Example("FastAPI"), reserved_port()
    (folder / "app.py").write_text(example.block("python"))
    (folder / "pack.toml").write_text(example.file({":8000": f":{port}"}))
    command = [sys.executable, "-m", "uvicorn", "app:app", "--port", str(port), "--no-access-log"]
    with (folder / "app.log").open("wb") as log:
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
    try:
        until(answers(f"http://127.0.0.1:{port}/config"), "the FastAPI service does not answer")
        yield Running("FastAPI", folder / "pack.toml")
    finally:
        process.terminate()
        process.wait()


@contextmanager
def nginx(folder: Path) -> Iterator[Running]:
    needed("nginx")
    example, port = Example("nginx"), reserved_port()
    for name in ("conf", "html"):
        (folder / name).mkdir()
    lines = (f"<p>{n} {' '.join(WORDS[n % 7 :])} {n * n}</p>" for n in range(2500))
    (folder / "html" / "index.html").write_text("\n".join(lines))
    (folder / "conf" / "gzip.conf").write_text("gzip_comp_level 6;\n")
    config = example.block("nginx")
    for old, new in {
        "/var/log/nginx/sent.log": str(folder / "sent.log"),
        "/etc/nginx/jouletune": str(folder / "conf"),
    }.items():
        assert old in config
        config = config.replace(old, new)
    (folder / "nginx.conf").write_text(
        f"worker_processes 1; pid {folder}/nginx.pid; error_log {folder}/error.log;\n"
        "events { worker_connections 64; }\n"
        f"http {{ {config} types {{ text/html html; }}\n"
        f"client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;\n"
        f"fastcgi_temp_path {folder}/f; uwsgi_temp_path {folder}/u; scgi_temp_path {folder}/s;\n"
        f"server {{ listen 127.0.0.1:{port}; root {folder}/html; }} }}\n"
    )
    (folder / "nginx.toml").write_text(
        example.file(
            {
                "127.0.0.1:80": f"127.0.0.1:{port}",
                "/run/nginx.pid": str(folder / "nginx.pid"),
                "/etc/nginx/jouletune/gzip.conf": str(folder / "conf" / "gzip.conf"),
                "/var/log/nginx/sent.log": str(folder / "sent.log"),
            }
        )
    )
    for part in (folder, *folder.parents[:2]):  # its workers run as another user
        part.chmod(0o755)
    call = ["nginx", "-c", str(folder / "nginx.conf"), "-p", str(folder)]
    _call([*call, "-g", "daemon on;"])
    try:
        until(answers(f"http://127.0.0.1:{port}/index.html"), "nginx does not answer")
        yield Running("nginx", folder / "nginx.toml")
    finally:
        _call([*call, "-s", "quit"])
        _await_end(folder / "nginx.pid")


@contextmanager
def postgresql(folder: Path) -> Iterator[Running]:
    needed("psql", "pgbench")
    example = Example("PostgreSQL")
    with postgres.server(folder / "server") as url:
        data = folder / "server" / "data"
        names = {"PGHOST": "127.0.0.1", "PGUSER": "tester", "PGDATABASE": "postgres"}
        environment = {**names, "PGPORT": url.rpartition(":")[2].partition("/")[0]}
        included = data / "conf.d"
        included.mkdir(mode=0o755)
        (included / "work_mem.conf").write_text("work_mem = '4MB'\n")
        (included / "gather.conf").write_text("max_parallel_workers_per_gather = 2\n")
        for part in (included, *included.iterdir()):
            part.chmod(0o755)
        data.chmod(0o750)
        with (data / "postgresql.conf").open("a") as config:
            config.write("include_dir = 'conf.d'\n")
        (folder / "join.sql").write_text(example.block("sql"))
        environ = {**os.environ, **environment}
        _call(["psql", "-XAtc", "SELECT pg_reload_conf()"], environ)
        _call(["createdb", "bench"], environ)
        _call(["pgbench", "--initialize", "--quiet", "--scale=5", "bench"], environ)
        (folder / "postgresql.toml").write_text(
            example.file(
                {
                    "/var/lib/postgresql/15/main/postmaster.pid": str(data / "postmaster.pid"),
                    "/etc/postgresql/15/main/conf.d": str(included),
                    "/etc/jouletune/join.sql": str(folder / "join.sql"),
                }
            )
        )
        yield Running("PostgreSQL", folder / "postgresql.toml", environment)


@contextmanager
def redis(folder: Path) -> Iterator[Running]:
    needed("redis-server", "redis-cli", "redis-benchmark")
    example, port = Example("Redis"), reserved_port()
    (folder / "io-threads.conf").write_text("io-threads 1\n")
    (folder / "redis.conf").write_text(
        f"port {port}\nbind 127.0.0.1\ndaemonize yes\npidfile {folder}/redis.pid\ndir {folder}\n"
        f'save ""\nlogfile {folder}/redis.log\ninclude {folder}/io-threads.conf\n'
    )
    start = ["redis-server", str(folder / "redis.conf")]
    # In place of `systemctl restart`, for a machine without systemd.
    restart = [sys.executable, "-m", "tests.plugins.restart", str(folder / "redis.pid"), *start]
    (folder / "redis.toml").write_text(
        example.file(
            {
                "/run/redis/redis-server.pid": str(folder / "redis.pid"),
                "/etc/redis/io-threads.conf": str(folder / "io-threads.conf"),
                '["systemctl", "restart", "redis-server"]': json.dumps(restart),
                '"6379"': f'"{port}"',
            }
        )
    )
    _call(start)
    try:
        top = str(Path(__file__).parents[2])
        until((folder / "redis.pid").exists, "Redis does not start")
        yield Running("Redis", folder / "redis.toml", {"PYTHONPATH": top})
    finally:
        with suppress(OSError, ValueError):
            os.kill(int((folder / "redis.pid").read_text()), 15)
        _await_end(folder / "redis.pid")


@contextmanager
def training(folder: Path) -> Iterator[Running]:
    example = Example("A PyTorch training")
    (folder / "train.py").write_text(example.block("python"))
    text = example.file({'"python3"': json.dumps(sys.executable), "/srv/train": str(folder)})
    (folder / "train.toml").write_text(text)
    yield Running("A PyTorch training", folder / "train.toml")


@contextmanager
def ffmpeg(folder: Path) -> Iterator[Running]:
    needed("ffmpeg")
    (folder / "transcode.toml").write_text(Example("ffmpeg").file({}))
    yield Running("ffmpeg", folder / "transcode.toml")


SERVERS = {one.__name__: one for one in (fastapi, nginx, postgresql, redis, training, ffmpeg)}


def _call(command: list[str], environ: Mapping[str, str] | None = None) -> None:
    done = run_to_end(command, env=environ, timeout=120)
    assert done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"


def _await_end(pid_file: Path) -> None:
    end = time.monotonic() + 60.0
    while pid_file.exists() and time.monotonic() < end:
        time.sleep(0.05)
