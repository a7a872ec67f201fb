"""The pods of the example on one GPU node: their permissions, and the restore at their end.

In the order of the file: the last test ends them all.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import trustme
from build_wheel import released

from tests import postgres
from tests.container.pod import AWAIT_S, Node, Pod, podman, runtime, until
from tests.kubernetes.rendered import files, pods
from tests.nvml.fake import A100, FakeNvml, build
from tests.processes import children, kill, link, proc

pytestmark = pytest.mark.timeout(3600)

EXAMPLE, HOST = "one-gpu-node", "jouletune-tuner.jouletune.svc"
ORIGINAL = (0.0, 400.0)
SYS_ADMIN = 1 << 21
PYTHON = "/opt/jouletune/current/bin/python"
HOLD_UP = f"""
import sys, time
from pathlib import Path
from agents.actuator_client.client import open_remote
from agents.host.machine import HostClock
knobs = open_remote(Path("/run/jouletune/actuator.sock"), "{A100}", HostClock())
knobs.apply({{"gpu.clock_mhz": 1005}})
print(knobs.read(), flush=True)
time.sleep(600)
"""
"""A program that acts like an agent in a trial."""
SET_BY_ITSELF = """
from ctypes import CDLL, byref, c_void_p
nvml, gpu = CDLL("libnvidia-ml.so.1"), c_void_p()
assert nvml.nvmlInit_v2() == 0 and nvml.nvmlDeviceGetHandleByIndex_v2(0, byref(gpu)) == 0
print(nvml.nvmlDeviceSetGpuLockedClocks(gpu, 600, 600))
"""
CONNECT = "import socket; socket.socket(socket.AF_UNIX).connect('/run/jouletune/actuator.sock')"
WRITE = "import sys; open(sys.argv[1], 'w')"


def image(target: str) -> str:
    return f"localhost/jouletune-{target}:{released()}"


def why_not() -> str:
    """Return what is missing to run the pods here."""
    if os.environ.get("JOULETUNE_TEST_CONTAINER") != "1":
        return "only `make test-container` runs containers"
    if os.geteuid() != 0 or shutil.which("podman") is None:
        return "podman and root are needed: apt install podman crun"
    missing = [t for t in ("agent", "actuator") if not there(t)]
    if missing:
        return f"`make image` has not built {', '.join(missing)}"
    return "" if runtime(image("agent")) else "no container runs here: apt install crun or runc"


def there(target: str) -> bool:
    return podman("image", "exists", image(target), check=False).returncode == 0


class Place:
    """The node, its fake GPU, and its certificates."""

    def __init__(self, folder: Path, database: str) -> None:
        gpu = folder / "gpu"
        gpu.mkdir()
        self.nvml = FakeNvml(build(gpu), gpu / "state", manual=False, root_only=1.0)
        gpu.chmod(0o777)
        (gpu / "state").chmod(0o666)
        authority = trustme.CA()
        certificate = authority.issue_cert(HOST, "127.0.0.1")
        agent = files(EXAMPLE, "jouletune-agent")["agent.toml"]
        assert agent.count('workload = "http://inference.default.svc:8000"') == 1
        self.node = Node(
            folder / "node",
            EXAMPLE,
            {name: image(name) for name in ("agent", "actuator", "tuner")},
            {
                "jouletune-tuner": files(EXAMPLE, "jouletune-tuner"),
                "jouletune-actuator": files(EXAMPLE, "jouletune-actuator"),
                "jouletune-agent": {
                    "agent.toml": agent.replace("http://inference.default.svc:8000", "simulated")
                },
                "jouletune-admin": {"token": "the-admins-token-of-this-test-alone"},
                "jouletune-database": {"url": database},
                "jouletune-ca": {"ca.crt": authority.cert_pem.bytes().decode()},
                "jouletune-tuner-tls": {
                    "tls.crt": certificate.cert_chain_pems[0].bytes().decode(),
                    "tls.key": certificate.private_key_pem.bytes().decode(),
                },
                "jouletune-enrol": {},
            },
            runtime(image("agent")),
            (
                f"--volume={gpu}:{gpu}:rw",
                f"--env=LD_LIBRARY_PATH={gpu}",
                f"--env=FAKENVML_STATE={gpu}/state",
                f"--add-host={HOST}:127.0.0.1",
            ),
        )
        self.pods: dict[str, Pod] = {}

    @property
    def gpu(self) -> tuple[float, float]:
        return self.nvml.get("lock_max"), self.nvml.get("limit_w")

    @property
    def journals(self) -> list[Path]:
        return sorted((self.node.folder / "var/lib/jouletune-actuator").glob("GPU-*.json"))

    def start(self, component: str) -> Pod:
        """Start a pod and wait until its probe succeeds."""
        pod = self.pods[component] = self.node.start(component)
        if component != "tuner":
            until(lambda: pod.probe() or not pod.up(), pod.log)
            assert pod.up(), pod.log()
        return pod

    def altered(self, name: str) -> None:
        """Set the GPU like an agent in a trial, in a separate container."""
        agent = Pod(self.node, "agent", pods(EXAMPLE)["agent"], name)
        assert agent.beside(PYTHON, "-c", HOLD_UP, name=name).returncode == 0
        self.node.running.append(agent)
        until(lambda: self.gpu[0] == 1005.0, agent.log)


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    if missing := why_not():
        pytest.skip(missing)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        server = stack.enter_context(postgres.server(folder / "server"))
        place = Place(folder, postgres.new_database(server, "pods"))
        stack.callback(place.node.clear)
        yield place


def test_the_actuator_has_one_capability_and_no_network(place: Place) -> None:
    pod = place.start("actuator")
    process = pod.process()
    (child,) = children(process)
    for pid in (process, child):
        status = pod.status(pid)
        assert status["Uid"].split() == ["0"] * 4
        assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd")} == {SYS_ADMIN}
        assert status["Seccomp"] == "2"
        listed = proc(pid, "net/dev").splitlines()[2:]
        assert [line.split(":")[0].strip() for line in listed] == ["lo"]
        assert link(pid, "ns/net") != link(os.getpid(), "ns/net")
    assert place.gpu == ORIGINAL


def test_the_root_is_read_only_and_the_journal_is_on_the_host(place: Place) -> None:
    pod = place.pods["actuator"]
    for path in ("/x", "/etc/jouletune/x", "/opt/jouletune/x", "/usr/local/bin/x"):
        done = pod.call(PYTHON, "-c", WRITE, path)
        assert "Read-only file system" in done.stderr, done.stderr
    assert pod.call(PYTHON, "-c", WRITE, "/var/lib/jouletune-actuator/x").returncode == 0
    (place.node.folder / "var/lib/jouletune-actuator/x").unlink()
    folder = (place.node.folder / "var/lib/jouletune-actuator").stat()
    assert (folder.st_uid, folder.st_mode & 0o777) == (0, 0o700)


def test_the_agents_user_sets_nothing_without_the_actuator(place: Place) -> None:
    agent = Pod(place.node, "agent", pods(EXAMPLE)["agent"], "alone")
    done = agent.beside(PYTHON, "-c", SET_BY_ITSELF)
    assert done.stdout.strip() == "4", done.stderr  # NVML_ERROR_NO_PERMISSION
    assert place.gpu == ORIGINAL
    assert agent.beside(PYTHON, "-c", CONNECT).returncode == 0
    for folder in ("/run/jouletune", "/etc/jouletune", "/etc"):
        done = agent.beside(PYTHON, "-c", WRITE, f"{folder}/x")
        assert "Read-only file system" in done.stderr, done.stderr
    # Another user, in the same container, who is not in the socket's group.
    stranger = (
        "setpriv",
        "--reuid=65534",
        "--regid=65534",
        "--clear-groups",
        PYTHON,
        "-c",
        CONNECT,
    )
    assert "Operation not permitted" in agent.beside(*stranger).stderr


@pytest.mark.promise("the actuator dies, also by SIGKILL")
def test_a_killed_actuator_is_restored_before_its_container_ends(place: Place) -> None:
    pod = place.pods["actuator"]
    place.altered("trial-1")
    process = pod.process()
    (child,) = children(process)
    kill(child)
    until(lambda: not pod.up(), pod.log)
    assert place.gpu == ORIGINAL, pod.log()
    assert place.journals == []
    pod.delete(0)


@pytest.mark.promise("the actuator dies, also by SIGKILL")
def test_a_deleted_pods_device_is_restored_by_the_next_pod(place: Place) -> None:
    pod = place.start("actuator")
    place.altered("trial-2")
    pod.delete(0)
    assert place.gpu[0] == 1005.0
    assert place.journals, "the journal did not outlive the pod"
    place.start("actuator")
    assert place.gpu == ORIGINAL
    assert place.journals == []


def test_a_stopped_pods_device_is_restored_within_its_grace_period(place: Place) -> None:
    place.altered("trial-3")
    pod = place.pods["actuator"]
    began = time.monotonic()
    pod.delete(pod.spec["terminationGracePeriodSeconds"])
    assert time.monotonic() - began < 120.0
    assert place.gpu == ORIGINAL
    assert place.journals == []


def test_a_wrong_file_leaves_nothing_set(place: Place) -> None:
    pod = place.start("actuator")
    place.altered("trial-4")
    pod.delete(0)
    given = place.node.given["jouletune-actuator"]
    place.node.given["jouletune-actuator"] = {"actuator.toml": "lease = 1\n"}
    broken = place.node.start("actuator")
    until(lambda: not broken.up(), broken.log)
    place.node.given["jouletune-actuator"] = given
    assert "lease" in broken.log()
    assert place.gpu == ORIGINAL


def test_the_tuner_is_ready_without_any_right(place: Place) -> None:
    if not there("tuner"):
        pytest.skip("`make image` has not built tuner")
    tuner = place.start("tuner")
    until(lambda: ready(tuner) or not tuner.up(), tuner.log)
    assert tuner.up(), tuner.log()
    status = tuner.status()
    assert status["Uid"].split() == ["10791"] * 4
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    health = ("python3", "-IS", "/usr/local/lib/jouletune/alive.py", "tuner")
    assert tuner.call(*health).returncode == 0


def ready(tuner: Pod) -> bool:
    (one,) = tuner.spec["containers"]
    ask = (
        "import ssl, urllib.request as u; print(u.urlopen('https://127.0.0.1:8790"
        f"{one['readinessProbe']['httpGet']['path']}', context=ssl._create_unverified_context()).status)"
    )
    return tuner.call(PYTHON, "-c", ask).stdout.strip() == "200"


def jouletune(place: Place, *command: str) -> str:
    """Run a command in the tuner's pod, as on the page."""
    done = place.pods["tuner"].call("jouletune", *command)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_an_agent_enrols_and_a_study_holds_over_the_end_of_every_pod(place: Place) -> None:
    place.node.given["jouletune-enrol"] = {"node-1": jouletune(place, "token", "create", "--enrol")}
    place.start("actuator")
    agent = place.start("agent")
    status = agent.status()
    assert status["Uid"].split() == status["Gid"].split() == ["10790"] * 4
    assert {int(status[name], 16) for name in ("CapPrm", "CapEff", "CapBnd", "CapAmb")} == {0}
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    until(lambda: json.loads(jouletune(place, "device", "list", "--json")), agent.log)
    (device,) = json.loads(jouletune(place, "device", "list", "--json"))
    assert device["device"]["id"] == "nvidia-0@node-1"
    terms = ["--trials", "4", "--window", "1.5", "--max-window", "6"]
    limit = ["--constraint", "latency_p99_ms <= 2x baseline"]
    created = jouletune(
        place, "study", "create", "--device", "nvidia-0@node-1", *limit, *terms, "--json"
    )
    jouletune(
        place,
        "study",
        "wait",
        json.loads(created)["id"],
        "--for",
        "holding",
        "--timeout",
        f"{AWAIT_S:g}s",
    )
    until(lambda: place.gpu != ORIGINAL, agent.log)
    held = place.gpu
    agent.delete(45)
    assert place.gpu == held, "a hold must outlive its agent for a while"
    place.start("agent")
    place.pods["actuator"].delete(300)
    assert place.gpu == ORIGINAL
    place.start("actuator")
    until(lambda: place.gpu == held, place.pods["agent"].log)


def test_stop_all_restores_before_the_pods_are_removed(place: Place) -> None:
    jouletune(place, "stop-all", "--why", "removal", "--yes")
    assert place.gpu == ORIGINAL
    for component in ("agent", "actuator", "tuner"):
        place.pods[component].delete(60)
    assert place.gpu == ORIGINAL
    assert place.journals == []
