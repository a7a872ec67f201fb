"""The permissions in the examples, and their agreement with the program and the units."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml  # type: ignore[import-untyped]
from build_chart import EXAMPLES, OPERATOR, RULES, UNSCRAPED, alerts, misfits
from build_wheel import released

import agents.main
import tuner.main
from agents.actuator.grants import ActuatorConfig, load_config
from agents.config import AgentConfig, load_agent_config
from tests.kubernetes.rendered import TOP, containers, files, kinds, objects, pods
from tests.processes import run_to_end
from tuner.cli.app import main
from tuner.config import TunerConfig, load_tuner_config
from tuner.service.http.bodies import is_open

DEPLOY = TOP / "deploy"
WITH_TUNER = ("one-gpu-node", "fleet")
RUNS_AS = {
    ("tuner", "token"): (10791, []),
    ("tuner", "tuner"): (10791, []),
    ("actuator", "folders"): (0, []),
    ("actuator", "actuator"): (0, ["SYS_ADMIN"]),
    ("agent", "folder"): (0, ["CHOWN", "FOWNER"]),
    ("agent", "agent"): (10790, []),
}
"""Every container's user and capabilities."""
RESTRICTED = {
    "configMap",
    "downwardAPI",
    "emptyDir",
    "persistentVolumeClaim",
    "projected",
    "secret",
}
"""Volumes of the Pod Security Standard `restricted`."""
EXAMPLE = pytest.mark.parametrize("example", EXAMPLES)


def unit(name: str, key: str) -> str:
    (value,) = re.findall(
        rf"^{key}=(.*)$", (DEPLOY / f"jouletune-{name}.service").read_text(), re.MULTILINE
    )
    return str(value)


@EXAMPLE
def test_each_container_has_its_user_and_capabilities_and_no_more(example: str) -> None:
    found = {(c.pod, c.name): (c.security["runAsUser"], c.added) for c in containers(example)}
    assert found == {k: v for k, v in RUNS_AS.items() if example != "agent-only" or k[0] != "tuner"}
    for one in containers(example):
        assert one.security["capabilities"]["drop"] == ["ALL"]
        assert one.security["readOnlyRootFilesystem"] is True
        assert one.security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert "privileged" not in one.security
        allowed = one.security.get("allowPrivilegeEscalation", True)
        assert allowed is ("SYS_ADMIN" in one.added), one.name


@EXAMPLE
def test_a_pod_mounts_only_the_hosts_files_that_it_needs(example: str) -> None:
    host = {
        name: {flag for flag in ("hostPID", "hostNetwork", "hostIPC", "hostUsers") if pod.get(flag)}
        for name, pod in pods(example).items()
    }
    assert host == {name: {"hostPID"} if name == "agent" else set() for name in host}
    paths = {
        name: {v["hostPath"]["path"] for v in pod["volumes"] if "hostPath" in v}
        for name, pod in pods(example).items()
    }
    run = str(Path(ActuatorConfig().socket).parent)
    assert paths["actuator"] == {run, ActuatorConfig().state_dir}
    assert paths["agent"] == {run, f"/var/lib/{unit('agent', 'StateDirectory')}"}
    assert paths.get("tuner", set()) == set()


@pytest.mark.parametrize("example", WITH_TUNER)
def test_the_tuners_pod_meets_the_standard_that_its_namespace_enforces(example: str) -> None:
    namespaces = kinds(example, "Namespace")
    level = "pod-security.kubernetes.io/enforce"
    assert namespaces["jouletune"]["metadata"]["labels"][level] == "restricted"
    pod = pods(example)["tuner"]
    assert {kind for volume in pod["volumes"] for kind in volume if kind != "name"} <= RESTRICTED
    for one in containers(example):
        if one.pod == "tuner":
            assert one.security["runAsNonRoot"] is True and not one.added
            assert one.security["allowPrivilegeEscalation"] is False


@EXAMPLE
def test_nothing_has_access_to_the_api_server(example: str) -> None:
    known = {
        "ConfigMap", "DaemonSet", "Deployment", "Namespace", "NetworkPolicy", "Service", *OPERATOR,
    }  # fmt: skip
    assert {one["kind"] for one in objects(example)} <= known
    assert all(pod["automountServiceAccountToken"] is False for pod in pods(example).values())


@EXAMPLE
def test_a_stop_has_as_long_as_under_systemd(example: str) -> None:
    for name, pod in pods(example).items():
        assert pod["terminationGracePeriodSeconds"] == int(unit(name, "TimeoutStopSec"))


@EXAMPLE
def test_every_long_running_container_is_probed(example: str) -> None:
    for name, pod in pods(example).items():
        (one,) = pod["containers"]
        assert {"startupProbe", "livenessProbe"} <= one.keys()
        for probe in (value for key, value in one.items() if key.endswith("Probe")):
            if name == "tuner":
                assert is_open(probe["httpGet"]["path"])
                assert probe["httpGet"]["scheme"] == "HTTPS"
            else:
                assert probe["exec"]["command"][-1] == name


@EXAMPLE
def test_every_mount_of_a_pod_has_its_volume(example: str) -> None:
    generated = kinds(example, "ConfigMap")
    made_by_hand = {"jouletune-ca"}
    for pod in pods(example).values():
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        every = (*pod.get("initContainers", ()), *pod["containers"])
        assert {m["name"] for one in every for m in one["volumeMounts"]} == volumes.keys()
        for volume in volumes.values():
            if "configMap" in volume:
                assert volume["configMap"]["name"] in generated.keys() | made_by_hand


@EXAMPLE
def test_images_have_this_release(example: str) -> None:
    for one in containers(example):
        image, _, tag = str(one.spec["image"]).rpartition(":")
        assert image == f"registry.example.org/jouletune-{one.pod}"
        assert tag == released(), "change newTag in deploy/kubernetes/*/kustomization.yaml"


@EXAMPLE
def test_the_agents_options_and_file_become_its_configuration(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = files(example, "jouletune-agent")
    (tmp_path / file).write_text(files(example, "jouletune-agent")[file])
    served: list[AgentConfig] = []
    monkeypatch.setattr(agents.main, "serve", served.append)
    (agent,) = (c for c in containers(example) if c.name == "agent")
    config, *rest = agent.spec["args"]
    assert config == f"--config=/etc/jouletune/{file}"
    given = [str(word).replace("$(NODE_NAME)", "node-1") for word in rest]
    assert main(["agent", "serve", f"--config={tmp_path / file}", *given]) == 0
    (asked,) = served
    assert asked.name == "node-1"
    assert asked.token_file == Path("/etc/jouletune-enrol/node-1")
    places = {mount["mountPath"] for mount in agent.spec["volumeMounts"]}
    assert {str(asked.state_dir), str(asked.token_file.parent)} <= places
    assert asked.ca_file is not None and str(asked.ca_file.parent) in places
    assert asked.metrics.removeprefix("unix:").rpartition("/")[0] in places


@pytest.mark.parametrize("example", WITH_TUNER)
def test_the_tuners_options_and_file_become_its_configuration(
    example: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (file,) = files(example, "jouletune-tuner")
    (tmp_path / file).write_text(files(example, "jouletune-tuner")[file])
    served: list[TunerConfig] = []
    monkeypatch.setattr(tuner.main, "serve", served.append)
    monkeypatch.setenv("JOULETUNE_DB", "postgresql://jouletune:secret@db/jouletune")
    (one,) = (c for c in containers(example) if c.name == "tuner")
    given = [str(word).replace("$(POD_IP)", "10.0.0.7") for word in one.spec["args"][1:]]
    asked = load_tuner_config(tmp_path / file)
    assert main(["tuner", "serve", f"--config={tmp_path / file}", *given]) == 0
    assert served[0].db.endswith("@db/jouletune")
    # Probes and Prometheus use the pod's address, agents the service's name.
    host = "jouletune-tuner.jouletune.svc"
    assert {"10.0.0.7", host} <= tuner.main.names(served[0])
    assert asked.tls.spoken
    agent_file = tmp_path / "agent.toml"
    agent_file.write_text(files(example, "jouletune-agent")["agent.toml"])
    (service,) = kinds(example, "Service").values()
    (port,) = service["spec"]["ports"]
    assert load_agent_config(agent_file).tuner == f"https://{host}:{port['port']}"
    assert service["metadata"]["name"] == host.partition(".")[0]
    assert port["port"] == served[0].port


@EXAMPLE
def test_the_actuators_file_grants_its_listed_knobs(example: str, tmp_path: Path) -> None:
    file = tmp_path / "actuator.toml"
    file.write_text(files(example, "jouletune-actuator")["actuator.toml"])
    granted = load_config(file).granted("GPU-1")
    assert granted.grant.keys() == {"gpu.clock_mhz", "gpu.power_limit_w"}


def test_replicas_are_separate_and_a_pools_agents_are_numbered() -> None:
    (deployment,) = kinds("fleet", "Deployment").values()
    assert deployment["spec"]["replicas"] == 3
    assert deployment["spec"]["template"]["spec"]["topologySpreadConstraints"]
    found = pods("fleet")
    for name in ("agent", "actuator"):
        assert found[name]["nodeSelector"]["pool"] == "a100"
    (label,) = (x for x in found["agent"]["containers"][0]["args"] if x.startswith("--label="))
    assert label == "--label=pool=a100"
    assert 'metric_labels = ["pool"]' in files("fleet", "jouletune-tuner")["tuner.toml"]


@EXAMPLE
def test_every_pod_has_a_policy_and_the_actuator_no_network_at_all(example: str) -> None:
    policies = kinds(example, "NetworkPolicy").values()
    by_pod = {
        p["spec"]["podSelector"]["matchLabels"]["app.kubernetes.io/component"]: p["spec"]
        for p in policies
    }
    assert by_pod.keys() == pods(example).keys()
    assert all({*p["policyTypes"]} == {"Ingress", "Egress"} for p in by_pod.values())
    assert not by_pod["actuator"].keys() & {"ingress", "egress"}
    assert "ingress" not in by_pod["agent"]
    ports = {
        p["name"]
        for p in pods(example).get("tuner", {}).get("containers", [{}])[0].get("ports", ())
    }
    named = {
        x["port"] for p in by_pod.values() for rule in p.get("ingress", ()) for x in rule["ports"]
    }
    assert named == ports


def test_the_alerts_are_those_of_prometheus_that_can_fire_in_pods() -> None:
    assert RULES.read_text() == alerts(), "run `make chart`"
    everywhere = yaml.safe_load((DEPLOY / "prometheus/rules.yml").read_text())
    all_rules = {r["alert"]: r["expr"] for g in everywhere["groups"] for r in g["rules"]}
    here = {r["alert"] for g in yaml.safe_load(alerts())["spec"]["groups"] for r in g["rules"]}
    left_out = all_rules.keys() - here
    assert all(any(metric in all_rules[name] for metric in UNSCRAPED) for name in left_out)
    page = (TOP / "docs/kubernetes.md").read_text()
    assert all(name in page for name in left_out)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="no promtool: apt install prometheus")
def test_promtool_accepts_the_alerts(tmp_path: Path) -> None:
    file = tmp_path / "rules.yml"
    file.write_text(yaml.safe_dump(yaml.safe_load(alerts())["spec"]))
    done = run_to_end(["promtool", "check", "rules", str(file)])
    assert done.returncode == 0, done.stdout + done.stderr


def test_an_unknown_field_of_the_operators_objects_is_found() -> None:
    kind: dict[str, Any] = OPERATOR["PodMonitor"]
    spec = {"selector": {"matchLabels": {}}, "podMetricsEndpoints": [{"port": 1, "host": "x"}]}
    assert [*misfits(spec, kind, "spec")] == [
        "spec.podMetricsEndpoints[0].port is a int",
        "spec.podMetricsEndpoints[0] has no field host",
    ]
