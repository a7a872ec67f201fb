"""Any sender's answer is bounded in memory and time."""

from __future__ import annotations

import asyncio
import gzip
import re
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx2
import pytest

from agents.host.http.local_http import LocalHttp
from agents.tuner_link.client import TunerClient, connect
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Spool
from tests.builders import applied
from tests.errors import raised
from tests.integration.spoken import running
from tuner import http_clients
from tuner.core import ActuationError, ConfigError, DeviceLost, LinkError
from tuner.foreign_bodies import BodyLate, fetched, parsed
from tuner.http_clients import BoundedTransport
from tuner.wire import MOST_ORDER_BYTES, Poll

BOMB_BYTES = 64 * 1024 * 1024
NAN = (
    '{"kind":"trial","study":"s","revision":1,"trial":1,"attempt":1,"token":1,"nonce":"n",'
    '"lease_s":30.0,"phase":"tuning","setting":{},"baseline":{},"metrics":[],'
    '"window_s":NaN,"max_window_s":60.0}'
)


class Hostile(BaseHTTPRequestHandler):
    """Answers every request with the attributes that `served` has set."""

    answer: bytes = b""
    packed = False
    chunks = 1
    pause_s = 0.0
    asked_for: list[str]

    def answered(self) -> None:
        type(self).asked_for.append(self.headers.get("Accept-Encoding", ""))
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        if self.packed:
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(self.answer) * self.chunks))
        self.end_headers()
        try:
            for _ in range(self.chunks):
                self.wfile.write(self.answer)
                self.wfile.flush()
                time.sleep(self.pause_s)
        except OSError:
            self.close_connection = True

    do_POST = do_GET = do_PUT = answered

    def log_message(self, *_: object) -> None:
        """Log nothing."""


@contextmanager
def served(
    answer: bytes, *, packed: bool = False, chunks: int = 1, pause_s: float = 0.0
) -> Iterator[tuple[str, list[str]]]:
    encodings: list[str] = []
    shown = {"answer": answer, "packed": packed, "chunks": chunks, "pause_s": pause_s}
    made = type("Made", (Hostile,), {**shown, "asked_for": encodings})
    with running(ThreadingHTTPServer(("127.0.0.1", 0), made)) as server:
        yield f"http://127.0.0.1:{server.server_address[1]}", encodings


@pytest.fixture
def credentials(tmp_path: Path) -> Credentials:
    (tmp_path / "agent-token").write_text("a own\n")
    return Credentials(tmp_path, tmp_path / "token", "a")


def ask(url: str, credentials: Credentials, folder: Path) -> object:
    spool = Spool(folder / "spool")
    with connect(url) as http:
        return TunerClient(http, credentials, spool).next(
            "sim", Poll(agent="a/1", applied=applied())
        )


def test_a_packed_answer_of_a_tuner_is_unpacked_up_to_its_limit(
    credentials: Credentials, tmp_path: Path
) -> None:
    """Before this limit 400 MB of zeros in 400 kB raised an agent's memory to 1.75 GB."""
    bomb = gzip.compress(b" " * BOMB_BYTES)
    assert len(bomb) < MOST_ORDER_BYTES
    with served(bomb, packed=True) as (url, encodings):
        with pytest.raises(LinkError, match="more than") as refused:
            ask(url, credentials, tmp_path)
        assert refused.value.hint
        assert encodings == ["identity"]


def test_an_endless_answer_of_a_tuner_is_given_up(credentials: Credentials, tmp_path: Path) -> None:
    with (
        served(b" " * 65_536, chunks=1_000) as (url, _),
        pytest.raises(LinkError, match="more than"),
    ):
        ask(url, credentials, tmp_path)


def test_an_order_to_measure_for_no_length_of_time_is_not_taken(
    credentials: Credentials, tmp_path: Path
) -> None:
    """Comparisons with NaN are false: such a window would last as long as the lease is renewed."""
    with (
        served(NAN.encode()) as (url, _),
        pytest.raises(LinkError, match="not the tuner's"),
    ):
        ask(url, credentials, tmp_path)


def test_an_answer_that_trickles_in_is_given_up() -> None:
    with (
        served(b"x", chunks=100, pause_s=0.05) as (url, _),
        httpx2.Client(
            transport=BoundedTransport(httpx2.HTTPTransport(), 1_000, body_s=0.3), base_url=url
        ) as http,
        pytest.raises(httpx2.ReadTimeout, match="in time"),
    ):
        http.get("/")


def _drip(server: socket.socket) -> None:
    """Send an endless response head byte by byte, each within the timeout of one read."""
    with suppress(OSError):
        line, _ = server.accept()
        with line:
            line.sendall(b"HTTP/1.1 200 OK\r\nX-Slow: ")
            for _ in range(200):
                line.sendall(b"x")
                time.sleep(0.05)


@pytest.fixture
def dripping() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=_drip, args=(server,))
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        thread.join()


def test_a_head_that_trickles_in_is_given_up(dripping: str) -> None:
    limits = httpx2.Timeout(0.2)
    began = time.monotonic()
    with (
        http_clients.client(1_000, timeout=limits) as http,
        pytest.raises(httpx2.ReadTimeout),
    ):
        http.get(dripping)
    assert time.monotonic() - began < 5.0


def test_a_head_that_trickles_in_is_given_up_by_an_event_loop(dripping: str) -> None:
    async def ask() -> None:
        async with http_clients.async_client(1_000, timeout=httpx2.Timeout(0.2)) as http:
            await http.get(dripping)

    began = time.monotonic()
    with pytest.raises(httpx2.ReadTimeout, match="in time"):
        asyncio.run(ask())
    assert time.monotonic() - began < 5.0


@pytest.mark.parametrize("host", ["..", "a" * 300, "a..b"])
def test_a_name_that_no_host_can_have_counts_as_no_answer(host: str) -> None:
    with http_clients.client(1_000) as http, pytest.raises(httpx2.ConnectError, match="named"):
        http.get(f"http://{host}:1/")


def test_the_zone_of_an_address_is_for_this_host_only() -> None:
    heads: list[bytes] = []
    with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:

        def answer() -> None:
            line, _ = server.accept()
            with line:
                heads.append(line.recv(4096))
                line.sendall(b"HTTP/1.1 204 No Content\r\n\r\n")

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        port = server.getsockname()[1]
        with http_clients.client(1_000) as http:
            assert http.get(f"http://[::1%251]:{port}/").status_code == 204
        thread.join()
    assert f"host: [::1]:{port}\r\n".encode() in heads[0].lower()


def test_an_answer_that_trickles_in_is_given_up_without_httpx_too() -> None:
    with served(b"x", chunks=100, pause_s=0.05) as (url, _), pytest.raises(BodyLate):
        fetched(url, {}, 1_000, 0.3, None)


def test_an_answer_of_a_workload_is_unpacked_up_to_its_limit() -> None:
    with served(gzip.compress(b" " * BOMB_BYTES), packed=True) as (url, _):
        program = LocalHttp(url, "the program", "start it")
        with pytest.raises(DeviceLost, match="more than"):
            program.call("GET", "/")
        program.close()


def test_a_body_of_a_program_may_take_as_long_as_its_request() -> None:
    with served(b"x", chunks=10, pause_s=0.05) as (url, _):
        program = LocalHttp(url, "the program", "start it", answer_s=0.2)
        assert program.call("GET", "/", within_s=60.0).content == b"x" * 10
        with pytest.raises(ActuationError, match=r"within 0\.2 s"):
            program.call("GET", "/")
        program.close()


def test_a_packed_answer_within_its_limit_is_read() -> None:
    with (
        served(gzip.compress(b'{"a": 1}'), packed=True) as (url, _),
        http_clients.client(1_000, base_url=url) as http,
    ):
        assert http.get("/").json() == {"a": 1}


@pytest.mark.parametrize("depth", [100, 100_000])
def test_deeply_nested_json_is_refused_and_ends_no_thread(depth: int) -> None:
    with pytest.raises(ValueError, match="nested more than 64 deep"):
        parsed("[" * depth + "]" * depth)
    assert parsed("[" * 60 + "]" * 60)


def test_a_redirect_to_another_host_is_not_followed() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(str(request.url))
        to = "/b" if request.url.path == "/a" else "http://elsewhere:1/b"
        return httpx2.Response(302, headers={"location": to})

    inner = httpx2.MockTransport(answer)
    with (
        http_clients.client(1_000, inner=inner, follow_redirects=True) as http,
        pytest.raises(httpx2.ReadError, match="redirected to http://elsewhere:1/b"),
    ):
        http.get("http://here:1/a")
    assert asked == ["http://here:1/a", "http://here:1/b"]


@pytest.mark.parametrize("given", ["socks5h://u:p@h:1", "http://u:p@h:x", "ftp://u:p@h:1"])
def test_a_proxy_of_another_kind_is_refused_by_name(
    given: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("all_proxy", given)
    with raised(ConfigError, "proxy", "https_proxy", "no_proxy=hooks.test") as refused:
        http_clients.outward("https://hooks.test/secret")
    assert "u:p" not in str(refused.value) and "secret" not in str(refused.value)


def test_a_proxy_without_a_scheme_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as proxy:
        monkeypatch.setenv("all_proxy", f"127.0.0.1:{proxy.getsockname()[1]}")
        inner = http_clients.outward("https://hooks.test")
        with http_clients.client(1, inner=inner, timeout=0.1) as http, suppress(httpx2.ReadTimeout):
            http.get("https://hooks.test")
        with proxy.accept()[0] as accepted:
            assert accepted.recv(19) == b"CONNECT hooks.test:"


READER = {"tuner/foreign_bodies.py", "tuner/http_clients.py"}
MADE = re.compile(
    r"httpx2\.(?:Async)?(?:Client|HTTPTransport)\(|httpx2\.(?:get|post|request|stream)\(|urlopen\(|"
    r"build_opener\(|zlib\.decompress|gzip\.(?:open|decompress)|body \+= "
)


def test_nothing_else_of_the_product_reads_a_foreign_body() -> None:
    """The proxy's forwarded bodies and the load generator's answers are not kept."""
    root = Path(__file__).parents[3]
    others = {
        f"{path.relative_to(root)}: {found[0]}"
        for room in ("tuner", "agents", "policies", "db")
        for path in (root / room).rglob("*.py")
        if str(path.relative_to(root)) not in READER
        for found in MADE.finditer(path.read_text())
    }
    assert not others
