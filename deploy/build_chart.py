"""Render and validate the examples in deploy/kubernetes: `build_chart.py FOLDER`, which gets a file each.

The alerts for the Prometheus operator are written first, from deploy/prometheus/rules.yml. Every object is
validated against the schemas of `KUBERNETES`, strictly: an unknown field is an error. The Prometheus
operator's objects have no schema here; their fields are compared with `OPERATOR`.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml  # type: ignore[import-untyped]

DEPLOY = Path(__file__).parent
CHART = DEPLOY / "kubernetes"
RULES = CHART / "monitoring" / "rules.yaml"
EXAMPLES = ("one-gpu-node", "fleet", "agent-only")
KUBERNETES = ("1.29", "1.37")
"""The oldest and the newest whose schemas are tried."""
UNSCRAPED = ("jouletune_agent_", "jouletune_device_altered_without_lease")
"""Metrics of agents and actuators: in pods nothing scrapes them, as neither opens a port."""
HEADER = """# Written by `make chart` from deploy/prometheus/rules.yml.
# Alerts on metrics of agents and actuators are left out: in pods nothing scrapes those.
"""
OPERATOR: dict[str, dict[str, Any]] = {
    "PodMonitor": {
        "selector": {"matchLabels": dict},
        "podMetricsEndpoints": [
            {
                "port": str,
                "scheme": str,
                "interval": str,
                "authorization": {"credentials": {"name": str, "key": str}},
                "tlsConfig": {"ca": {"configMap": {"name": str, "key": str}}, "serverName": str},
                "relabelings": [{"targetLabel": str, "replacement": str}],
            }
        ],
    },
    "PrometheusRule": {
        "groups": [
            {
                "name": str,
                "rules": [
                    {"alert": str, "expr": str, "for": str, "labels": dict, "annotations": dict}
                ],
            }
        ]
    },
}
"""What we use of monitoring.coreos.com/v1, by its API reference; ours, not the operator's schema."""


def main() -> None:
    """Write the alerts, render every example, and exit with what is not valid."""
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    RULES.write_text(alerts(), encoding="utf-8")
    wrong = []
    for name in EXAMPLES:
        text = rendered(name)
        file = folder / f"{name}.yaml"
        file.write_text(text, encoding="utf-8")
        objects = [*yaml.safe_load_all(text)]
        found = [f"{name}: {why}" for one in objects for why in complaints(one)]
        wrong += found
        tried = ", ".join(KUBERNETES)
        sys.stdout.write(
            f"{file}: {len(objects)} objects, {len(found)} wrong by Kubernetes {tried}\n"
        )
    if wrong:
        sys.exit("\n".join(wrong))


def alerts() -> str:
    """Return the PrometheusRule of the alerts whose metrics a tuner has."""
    groups = yaml.safe_load((DEPLOY / "prometheus" / "rules.yml").read_text(encoding="utf-8"))
    for group in groups["groups"]:
        group["rules"] = [r for r in group["rules"] if not any(m in r["expr"] for m in UNSCRAPED)]
    rule = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "jouletune"},
        "spec": groups,
    }
    text: str = yaml.safe_dump(rule, sort_keys=False, width=1000, allow_unicode=True)
    return HEADER + text


def rendered(name: str, kubectl: str = "") -> str:
    """Return an example as kustomize, which is in kubectl, renders it."""
    program = kubectl or str(Path(sys.executable).with_name("kubectl"))
    command = [program, "kustomize", str(CHART / "examples" / name)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"build_chart.py: {name}: {done.stderr.strip()}")
    return done.stdout


def complaints(one: dict[str, Any]) -> Iterator[str]:
    """Yield what is not valid in an object."""
    import kubernetes_validate  # type: ignore[import-not-found]

    called = f"{one['kind']} {one['metadata']['name']}"
    if one["kind"] in OPERATOR:
        yield from (
            f"{called}: {why}" for why in misfits(one["spec"], OPERATOR[one["kind"]], "spec")
        )
        return
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(one, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            yield f"{called}, Kubernetes {version}: {error.message}"


def misfits(value: object, kind: object, where: str) -> Iterator[str]:
    """Yield where a value is not of a kind: a type, a list of one kind, or fields with theirs."""
    if isinstance(kind, list) and isinstance(value, list):
        for number, item in enumerate(value):
            yield from misfits(item, kind[0], f"{where}[{number}]")
    elif isinstance(kind, dict) and isinstance(value, dict):
        for key, item in value.items():
            if key in kind:
                yield from misfits(item, kind[key], f"{where}.{key}")
            else:
                yield f"{where} has no field {key}"
    elif not (isinstance(kind, type) and isinstance(value, kind)):
        yield f"{where} is a {type(value).__name__}"


if __name__ == "__main__":
    main()
