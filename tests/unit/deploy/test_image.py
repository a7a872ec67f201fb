"""The images, checked without building them: users, probes, lists of parts."""

from __future__ import annotations

import importlib.util
import io
import json
import re
import shutil
import socket
import ssl
import subprocess
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, cast

import pytest
import trustme
import yaml  # type: ignore[import-untyped]
from build_image import LOCKS, MOST_MB, USERS, debian_parts

DEPLOY = Path(__file__).parents[3] / "deploy"
RECIPE = (DEPLOY / "container/Containerfile").read_text()
STAGES = dict(re.findall(r"^FROM \w+ AS (\w+)\n(.*?)(?=^FROM|\Z)", RECIPE, re.M | re.S))
PODS = {"tuner": "tuner/deployment", "agent": "node/agent", "actuator": "node/actuator"}


class ProbeScript(Protocol):
    """alive.py as a module."""

    SOCKETS: dict[str, str]
    TUNER: tuple[str, int]

    def main(self, name: str) -> int: ...


def pod(target: str) -> dict[str, object]:
    text = (DEPLOY / f"kubernetes/{PODS[target]}.yaml").read_text()
    spec: dict[str, object] = yaml.safe_load(text)["spec"]["template"]["spec"]
    return spec


@pytest.mark.parametrize("target", MOST_MB)
def test_an_image_runs_as_its_pod_does_and_is_probed(target: str) -> None:
    stage = STAGES[target]
    (user, group) = re.findall(r"^USER (\d+):(\d+)$", stage, re.MULTILINE)[0]
    security = pod(target)["securityContext"]
    assert isinstance(security, dict)
    assert int(user) == security["runAsUser"]
    assert int(group) == security.get("runAsGroup", 0)
    assert f'"/usr/local/lib/jouletune/alive.py", "{target}"]' in stage
    assert "ENTRYPOINT" in stage and LOCKS[target]


def test_users_of_the_image_are_those_of_the_pods_and_the_group_of_the_actuators_file() -> None:
    numbers = {number for number, _ in USERS.values()}
    assert numbers == {10790, 10791}
    security = pod("actuator")["securityContext"]
    assert isinstance(security, dict)
    (number,) = (number for number, group in USERS.values() if group == "jouletune")
    assert security["supplementalGroups"] == [number]


def test_nothing_is_fetched_while_an_image_is_built() -> None:
    assert re.findall(r"^FROM (\S+)", RECIPE, re.MULTILINE)[0] == "scratch"
    assert not re.search(r"https?:|apt-get|curl|wget", RECIPE)
    assert RECIPE.count("--require-hashes") == 2 and RECIPE.count("--no-index") == 2


@pytest.mark.skipif(shutil.which("dash") is None, reason="no dash here")
def test_the_actuators_script_is_plain_shell() -> None:
    script = DEPLOY / "container/actuator.sh"
    subprocess.run(["dash", "-n", str(script)], check=True)
    if shutil.which("shellcheck"):
        subprocess.run(["shellcheck", str(script)], check=True)
    assert script.stat().st_mode & 0o111


def test_debian_packages_are_listed_as_parts(tmp_path: Path) -> None:
    status = (
        b"Package: libc6\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2.36-9\n\n"
        b"Package: perl\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 5\n\n"
    )
    with tarfile.open(tmp_path / "root.tar", "w") as tar:
        entry = tarfile.TarInfo("./var/lib/dpkg/status")
        entry.size = len(status)
        tar.addfile(entry, io.BytesIO(status))
    (part,) = debian_parts(tmp_path / "root.tar")
    assert (part["name"], part["version"]) == ("libc6", "2.36-9")
    assert part["purl"] == "pkg:deb/debian/libc6@2.36-9?arch=amd64&distro=bookworm"


@pytest.fixture
def alive() -> ProbeScript:
    """The probe, loaded separately for each test."""
    spec = importlib.util.spec_from_file_location("alive", DEPLOY / "container/alive.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("ProbeScript", module)


@contextmanager
def answering(
    listener: socket.socket, answer: bytes, tls: ssl.SSLContext | None = None
) -> Iterator[None]:
    """Answer one connection's request."""
    listener.listen(1)

    def serve() -> None:
        line, _ = listener.accept()
        with tls.wrap_socket(line, server_side=True) if tls else line as spoken:
            spoken.recv(1000)
            spoken.sendall(answer)

    thread = threading.Thread(target=serve)
    thread.start()
    yield
    thread.join()
    listener.close()


@pytest.mark.parametrize(
    ("name", "answer", "code"),
    [
        ("actuator", b'{"ok": true}\n', 0),
        ("actuator", b'{"ok": false, "code": "conflict"}\n', 1),
        ("actuator", b"", 1),
        ("agent", b"HTTP/1.0 200 OK\r\n\r\n", 0),
        ("agent", b"HTTP/1.0 500 Broken\r\n\r\n", 1),
    ],
)
def test_a_socket_is_probed(
    alive: ProbeScript, tmp_path: Path, name: str, answer: bytes, code: int
) -> None:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(tmp_path / "s"))
    alive.SOCKETS = {name: str(tmp_path / "s")}
    with answering(listener, answer):
        assert alive.main(name) == code


def test_the_tuner_is_probed_over_tls(alive: ProbeScript) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("tuner.example.org").configure_cert(context)
    listener = socket.create_server(("127.0.0.1", 0))
    alive.TUNER = listener.getsockname()
    with answering(listener, b"HTTP/1.1 200 OK\r\n\r\n", context):
        assert alive.main("tuner") == 0


def test_a_missing_device_does_not_answer(
    alive: ProbeScript, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    alive.SOCKETS = {"agent": str(tmp_path / "none")}
    assert alive.main("agent") == 1
    assert "agent does not answer" in capsys.readouterr().err


def test_the_probes_of_sockets_look_where_the_processes_listen(alive: ProbeScript) -> None:
    arguments = json.dumps(pod("agent"))
    assert f"--metrics=unix:{alive.SOCKETS['agent']}" in arguments
