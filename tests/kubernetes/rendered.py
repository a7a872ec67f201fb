"""The examples as objects, rendered by the kubectl of `make chart`, which includes kustomize."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml  # type: ignore[import-untyped]
from build_chart import rendered

TOP = Path(__file__).parents[2]
OWN = TOP / "build/chart/bin/kubectl"


@functools.cache
def objects(example: str) -> tuple[dict[str, Any], ...]:
    """Return an example's objects; skip the test without a kubectl."""
    if not OWN.exists():
        pytest.skip("no kubectl here: `make chart` installs one")
    return tuple(yaml.safe_load_all(rendered(example, str(OWN))))


def kinds(example: str, kind: str) -> dict[str, dict[str, Any]]:
    """Return an example's objects of a kind, by name."""
    return {o["metadata"]["name"]: o for o in objects(example) if o["kind"] == kind}


def pods(example: str) -> dict[str, dict[str, Any]]:
    """Return the specs of an example's pods, by component."""
    found = [*kinds(example, "Deployment").values(), *kinds(example, "DaemonSet").values()]
    templates = [one["spec"]["template"] for one in found]
    return {t["metadata"]["labels"]["app.kubernetes.io/component"]: t["spec"] for t in templates}


class Container(NamedTuple):
    """A container of a pod, and its permissions; the pod's settings are its defaults."""

    pod: str
    name: str
    spec: Mapping[str, Any]
    security: Mapping[str, Any]

    @property
    def added(self) -> list[str]:
        """The capabilities of the container."""
        return list(self.security["capabilities"].get("add", ()))


def containers(example: str) -> Iterator[Container]:
    """Yield every container of an example, init containers included."""
    for component, pod in pods(example).items():
        for spec in (*pod.get("initContainers", ()), *pod["containers"]):
            security = {**pod["securityContext"], **spec["securityContext"]}
            yield Container(component, spec["name"], spec, security)


def files(example: str, config_map: str) -> dict[str, str]:
    """Return the files of a generated ConfigMap; its name ends with their digest."""
    found = kinds(example, "ConfigMap")
    (name,) = (name for name in found if name.rpartition("-")[0] == config_map)
    data: dict[str, str] = found[name]["data"]
    return data
