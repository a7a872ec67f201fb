"""A pod of the rendered example, run by podman: a small kubelet that refuses unknown fields.

It implements these parts of the example: users, groups, capabilities, the read-only root, mounts,
environment, arguments. Not implemented are the network (every pod has this process's), node selection,
and the NVIDIA runtime; the test mounts a fake NVML instead.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests import processes
from tests.kubernetes.rendered import pods
from tests.processes import proc, run_to_end

POD = {
    "automountServiceAccountToken", "containers", "enableServiceLinks", "hostPID", "initContainers",
    "nodeSelector", "runtimeClassName", "securityContext", "terminationGracePeriodSeconds",
    "tolerations", "topologySpreadConstraints", "volumes",
}  # fmt: skip
CONTAINER = {
    "args", "command", "env", "image", "livenessProbe", "name", "ports", "readinessProbe", "resources",
    "securityContext", "startupProbe", "volumeMounts",
}  # fmt: skip
SECURITY = {
    "allowPrivilegeEscalation", "capabilities", "fsGroup", "readOnlyRootFilesystem", "runAsGroup",
    "runAsNonRoot", "runAsUser", "seccompProfile", "supplementalGroups",
}  # fmt: skip
"""Fields that this kubelet implements, or that only a cluster can implement."""
AWAIT_S = 300.0
until = partial(processes.until, within_s=AWAIT_S)
LIMITS = ("--ulimit=nofile=16384:16384", "--ulimit=nproc=4096:4096")
"""Podman's default limits may exceed those of the host."""


def podman(*command: str, check: bool = True) -> subprocess.CompletedProcess[str]:
    """Run podman; raise an error if it fails, unless the caller checks that."""
    done = run_to_end(["podman", *command], timeout=AWAIT_S)
    assert not check or done.returncode == 0, (
        f"{command}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    )
    return done


def runtime(image: str) -> tuple[str, ...]:
    """Return the option of podman with which containers run on this host; empty if none works.

    crun refuses hosts with both versions of cgroups; runc runs there.
    """
    for option in ("--runtime=crun", "--runtime=runc"):
        tried = ("run", "--rm", "--network=host", *LIMITS, "--entrypoint=/bin/true", image)
        if podman(option, *tried, check=False).returncode == 0:
            return (option,)
    return ()


@dataclass
class Node:
    """A node: its folders, and the volumes that a cluster would give its pods."""

    folder: Path
    example: str
    images: Mapping[str, str]
    given: dict[str, dict[str, str]]
    runtime: tuple[str, ...] = ()
    extra: Sequence[str] = ()
    """Options of podman that the test adds, such as the fake NVML."""
    running: list[Pod] = field(default_factory=list)

    def start(self, component: str) -> Pod:
        """Start a pod, its init containers first."""
        pod = Pod(
            self, component, pods(self.example)[component], f"{component}-{time.monotonic_ns()}"
        )
        self.running.append(pod)
        pod.start()
        return pod

    def clear(self) -> None:
        """Delete every pod, at once."""
        for pod in self.running:
            pod.delete(0)


@dataclass
class Pod:
    """A pod with one container that keeps running."""

    node: Node
    component: str
    spec: Mapping[str, Any]
    name: str

    def start(self) -> None:
        """Create the volumes, run the init containers, start the container."""
        assert self.spec.keys() <= POD, self.spec.keys() - POD
        for one in self.spec.get("initContainers", ()):
            podman(*self.node.runtime, "run", "--rm", *self.options(one))
        (one,) = self.spec["containers"]
        podman(*self.node.runtime, "run", "--detach", "--name", self.name, *self.options(one))

    def options(
        self, one: Mapping[str, Any], command: Sequence[str] = (), user: str = ""
    ) -> list[str]:
        """Return podman's options, image and arguments of a container; `command` and `user` override it."""
        assert one.keys() <= CONTAINER, one.keys() - CONTAINER
        security = {**self.spec["securityContext"], **one["securityContext"]}
        assert security["readOnlyRootFilesystem"] is True
        assert security.keys() <= SECURITY, security.keys() - SECURITY
        capabilities = security["capabilities"]
        own = f"{security['runAsUser']}:{security.get('runAsGroup', security['runAsUser'])}"
        bound = not security.get("allowPrivilegeEscalation", True)
        env = dict(self._environment(one))
        entry = [_expanded(word, env) for word in (command or one.get("command", ()))]
        arguments = [] if command else [_expanded(word, env) for word in one.get("args", ())]
        return [
            "--network=host", *LIMITS,
            *(["--pid=host"] if self.spec.get("hostPID") else []),
            f"--user={user or own}",
            *(f"--group-add={group}" for group in self._groups() if not user),
            *(f"--cap-drop={name}" for name in capabilities["drop"]),
            *(f"--cap-add={name}" for name in capabilities.get("add", ())),
            *(["--security-opt=no-new-privileges"] if bound else []),
            "--read-only", "--read-only-tmpfs=false",
            *(f"--env={name}={value}" for name, value in env.items()),
            *(f"--volume={self._volume(mount)}" for mount in one["volumeMounts"]),
            *self.node.extra,
            *([f"--entrypoint={json.dumps(entry)}"] if entry else []),
            self.node.images[self.component],
            *arguments,
        ]  # fmt: skip

    def _groups(self) -> list[int]:
        pod = self.spec["securityContext"]
        return [*pod.get("supplementalGroups", ()), *([pod["fsGroup"]] if "fsGroup" in pod else [])]

    def _environment(self, one: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
        fields = {"spec.nodeName": "node-1", "status.podIP": "127.0.0.1"}
        for entry in one.get("env", ()):
            if "value" in entry:
                yield entry["name"], entry["value"]
                continue
            (source,) = entry["valueFrom"].values()
            if "fieldPath" in source:
                yield entry["name"], fields[source["fieldPath"]]
            else:
                yield entry["name"], self.node.given[source["name"]][source["key"]]

    def _volume(self, mount: Mapping[str, Any]) -> str:
        """Return a mount; create its folder as the kubelet does."""
        (volume,) = (v for v in self.spec["volumes"] if v["name"] == mount["name"])
        group = self.spec["securityContext"].get("fsGroup", 0)
        kind = next(key for key in volume if key != "name")
        source = volume[kind]
        if kind == "hostPath":
            assert source["type"] == "DirectoryOrCreate"
            folder = self.node.folder / source["path"].lstrip("/")
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
        else:
            folder = self.node.folder / "pods" / self.name / volume["name"]
            if not folder.exists():
                folder.mkdir(parents=True)
                mode = source.get("defaultMode", 0o644)
                self._fill(folder, source.get("name") or source.get("secretName") or "", mode)
                for path in (folder, *folder.iterdir()):
                    os.chown(path, 0, group)
                folder.chmod(0o2777 if kind == "emptyDir" else 0o755)
        return f"{folder}:{mount['mountPath']}:{'ro' if mount.get('readOnly') else 'rw'}"

    def _fill(self, folder: Path, name: str, mode: int) -> None:
        # A generated name ends with a digest.
        for key, text in self.node.given.get(re.sub(r"-[0-9a-z]{10}$", "", name), {}).items():
            (folder / key).write_text(text)
            (folder / key).chmod(mode)

    def process(self) -> int:
        """Return the process id of the container's first process on this host."""
        return int(podman("inspect", "--format", "{{.State.Pid}}", self.name).stdout)

    def status(self, pid: int | None = None) -> dict[str, str]:
        """Return /proc/PID/status of the container's first process."""
        text = proc(pid or self.process(), "status")
        return {
            name: value.strip() for name, value in re.findall(r"^(\w+):(.*)$", text, re.MULTILINE)
        }

    def up(self) -> bool:
        """Return whether the container is running."""
        done = podman("inspect", "--format", "{{.State.Running}}", self.name, check=False)
        return done.stdout.strip() == "true"

    def probe(self) -> bool:
        """Return whether its liveness probe succeeds."""
        (one,) = self.spec["containers"]
        return self.call(*one["livenessProbe"]["exec"]["command"]).returncode == 0

    def call(self, *command: str) -> subprocess.CompletedProcess[str]:
        """Run a command in the container, as `kubectl exec` does."""
        return podman("exec", self.name, *command, check=False)

    def beside(
        self, *command: str, name: str = "", user: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a command in a container like the pod's own; detached under a name if one is given."""
        (one,) = self.spec["containers"]
        how = ["--detach", "--name", name] if name else ["--rm"]
        return podman(
            *self.node.runtime, "run", *how, *self.options(one, command, user), check=False
        )

    def delete(self, grace_s: int) -> None:
        """Delete the pod: SIGTERM, and SIGKILL after the grace period; 0: SIGKILL."""
        if grace_s:
            podman("stop", "--time", str(grace_s), self.name, check=False)
        podman("rm", "--force", "--time", "0", self.name, check=False)
        shutil.rmtree(self.node.folder / "pods" / self.name, ignore_errors=True)

    def log(self) -> str:
        """Return the end of the container's log."""
        done = podman("logs", "--tail", "40", self.name, check=False)
        return done.stdout + done.stderr


def _expanded(word: object, env: Mapping[str, str]) -> str:
    """Return an argument as the kubelet expands it."""
    return re.sub(r"\$\((\w+)\)", lambda m: env.get(m[1], m[0]), str(word))
