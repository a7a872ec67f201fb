"""Converts a deployment's config to a setting and back, and computes its space for the cluster."""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any

from agents.workloads.ray.dashboard import Application, Node, RayInstance
from tuner.core import Cost, Knob, Part, Role, Setting, Space, Value

REPLICAS, CPUS, BATCH = "replicas", "num_cpus", "batch_size"
ROLES = {REPLICAS: Role.PARALLEL, CPUS: Role.PARALLEL, BATCH: Role.BATCH}
USER_BATCH = "max_batch_size"
"""The key of `user_config` that a deployment hands to its `@serve.batch` method."""
SET_KEYS = ("num_replicas", "ray_actor_options", "user_config")
"""The keys of a deployment's config with the knobs."""
MANY = 16
"""A cluster with more CPUs gets powers of two only: our choice, it keeps the space small."""
NO_REPLICAS = "Ray's autoscaler sets it (autoscaling_config)"
NO_BATCH = f"the deployment's user_config has no number {USER_BATCH}"


def setting_of(config: Mapping[str, Any]) -> Setting:
    """Return the settable knobs of a deployment's whole config."""
    setting: dict[str, Value] = {}
    if config.get("autoscaling_config") is None and isinstance(config.get("num_replicas"), int):
        setting[REPLICAS] = int(config["num_replicas"])
    cpus = (config.get("ray_actor_options") or {}).get("num_cpus")
    setting[CPUS] = _plain(1.0 if cpus is None else float(cpus))
    batch = (config.get("user_config") or {}).get(USER_BATCH)
    if isinstance(batch, int) and not isinstance(batch, bool):
        setting[BATCH] = batch
    return setting


def named_in(app_config: Mapping[str, Any], deployment: str) -> dict[str, Any]:
    """Return the knobs' keys that an application's config itself sets; the others come from its code."""
    entry = _entry(app_config, deployment) or {}
    return {key: copy.deepcopy(entry[key]) for key in SET_KEYS if key in entry}


def with_setting(
    app_config: Mapping[str, Any], deployment: str, whole: Mapping[str, Any], setting: Setting
) -> dict[str, Any]:
    """Return an application's config with a setting in it.

    Ray replaces options and user config as a whole: the values beside the knobs in `whole`, the
    deployment's config in force, are kept.
    """
    config, entry = _opened(app_config, deployment)
    if REPLICAS in setting:
        entry["num_replicas"] = setting[REPLICAS]
    if CPUS in setting:
        options = entry.get("ray_actor_options") or whole.get("ray_actor_options") or {}
        entry["ray_actor_options"] = {**options, "num_cpus": setting[CPUS]}
    if BATCH in setting:
        user = entry.get("user_config") or whole.get("user_config") or {}
        entry["user_config"] = {**user, USER_BATCH: setting[BATCH]}
    return config


def as_named(
    app_config: Mapping[str, Any], deployment: str, named: Mapping[str, Any]
) -> dict[str, Any]:
    """Return an application's config with the knobs' keys exactly as before."""
    config, entry = _opened(app_config, deployment)
    for key in SET_KEYS:
        entry.pop(key, None)
    entry.update(copy.deepcopy(dict(named)))
    if set(entry) == {"name"}:
        config["deployments"].remove(entry)
    return config


def version_of(app_config: Mapping[str, Any], whole: Mapping[str, Any]) -> str:
    """Return a hash of the code, its arguments, and everything else but the knobs."""
    rest = {k: v for k, v in whole.items() if k not in (*SET_KEYS, "name")}
    options = {**(whole.get("ray_actor_options") or {}), "num_cpus": None}
    user = {**(whole.get("user_config") or {}), USER_BATCH: None}
    source = [app_config.get(key) for key in ("import_path", "runtime_env", "args")]
    text = json.dumps([source, rest, options, user], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def space_for(
    original: Setting, whole: Mapping[str, Any], nodes: Sequence[Node], taken: float
) -> Space:
    """Return the settings that fit the cluster's CPUs; the default is the original.

    Replicas and CPUs go up to the machines' CPUs less `taken`, those of everything else in Ray
    Serve. A batch cannot be larger than `max_ongoing_requests`, as Ray sends a replica no more at a
    time.
    """
    sizes = [node.resources_total.get("CPU", 0.0) for node in nodes]
    room = max(1, int(sum(sizes) - taken))
    counts = _counts(room)
    most = int(whole.get("max_ongoing_requests") or 1)
    batches = [2**k for k in range(most.bit_length()) if 2**k <= most]
    # A new replica loads its model; the seconds are our estimate of the least duration.
    offered: dict[str, tuple[Sequence[Value], Cost]] = {
        REPLICAS: (counts, Cost(seconds=5.0)),
        CPUS: ([c for c in counts if c <= max([*sizes, 1.0])], Cost(seconds=10.0, restart=True)),
        BATCH: (batches, Cost(seconds=0.5)),
    }
    knobs = tuple(
        Knob(
            name, _listed(values, original[name]), original[name], Part.WORKLOAD, cost, ROLES[name]
        )
        for name, (values, cost) in offered.items()
        if name in original
    )
    replicas = int(whole.get("num_replicas") or 1)
    grid = (
        dict(zip([k.name for k in knobs], values, strict=True))
        for values in product(*(k.values for k in knobs))
    )
    only = [
        setting
        for setting in grid
        if setting == original
        or _fits(float(setting[CPUS]), int(setting.get(REPLICAS, replicas)), sizes, room)
    ]
    return Space(knobs, tuple(only))


def taken_by_others(instance: RayInstance, application: str, deployment: str) -> float:
    """Return the CPUs requested by everything else in Ray Serve."""
    return sum(
        other.target_num_replicas * other.required_resources.get("CPU", 0.0)
        for app_name, app in instance.applications.items()
        for name, other in app.deployments.items()
        if (app_name, name) != (application, deployment)
    )


def trouble_of(app: Application, deployment: str, requested: Setting) -> str:
    """Return the reason why a setting is not yet in force on every replica; empty if it is in force."""
    reported = app.deployments.get(deployment)
    if reported is None or setting_of(reported.deployment_config) != requested:
        return f"Ray has not applied it: the application is {app.status} {app.message}".rstrip()
    running = sum(1 for replica in reported.replicas if replica.state == "RUNNING")
    others = len(reported.replicas) - running
    if reported.status == "HEALTHY" and running == reported.target_num_replicas and not others:
        return ""
    reason = reported.message or app.message
    return f"{reported.status}, {running} of {reported.target_num_replicas} replicas run: {reason}"


def _fits(cpus: float, replicas: int, sizes: Sequence[float], room: float) -> bool:
    """Return whether replicas of some CPUs each fit the machines."""
    if cpus <= 0.0:
        return True
    return replicas * cpus <= room and replicas <= sum(int(size / cpus) for size in sizes)


def _counts(room: int) -> list[int]:
    """Return the numbers of CPUs to offer, up to `room`."""
    if room <= MANY:
        return list(range(1, room + 1))
    return sorted({2**k for k in range(room.bit_length())} | {room})


def _listed(values: Sequence[Value], original: Value) -> tuple[Value, ...]:
    """Return the values with the original, ascending."""
    return tuple(sorted({*values, original}, key=float))


def _plain(number: float) -> int | float:
    """Return a whole number as an int."""
    return int(number) if number.is_integer() else number


def _entry(app_config: Mapping[str, Any], deployment: str) -> dict[str, Any] | None:
    """Return a deployment's entry in a config; None without one."""
    entries = app_config.get("deployments") or []
    return next((entry for entry in entries if entry.get("name") == deployment), None)


def _opened(
    app_config: Mapping[str, Any], deployment: str
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return a copy of the config, and the deployment's entry in it, created if missing."""
    config = copy.deepcopy(dict(app_config))
    config["deployments"] = list(config.get("deployments") or [])
    entry = _entry(config, deployment)
    if entry is None:
        entry = {"name": deployment}
        config["deployments"].append(entry)
    return config, entry
