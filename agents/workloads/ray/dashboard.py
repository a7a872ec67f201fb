"""Client of Ray's dashboard: typed answers, and our errors for everything else.

Sources: Ray 2.60, `ray.serve.schema` (`ServeInstanceDetails`, `ServeDeploySchema`) and "Serve REST
API"; the state API's list of nodes; the dashboard's service discovery for Prometheus.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, TypeVar

import httpx2
from pydantic import AliasPath, BaseModel, Field, TypeAdapter

from agents.host.http.local_http import LocalHttp
from tuner.core import ActuationError

ANSWER_S = 20.0
"""Timeout in s: the first request starts a module of the dashboard; it took 2 s on two cores."""
REDACTED = "<redacted>"
"""The dashboard's replacement for secrets; if it were written back, the secrets would be lost."""


class Replica(BaseModel):
    """One replica, with its process id if it has a process."""

    state: str
    pid: int | None = None


class Deployment(BaseModel):
    """One deployment: its request, and its progress."""

    status: str
    message: str = ""
    deployment_config: dict[str, Any]
    target_num_replicas: int = 0
    required_resources: dict[str, float] = Field(default_factory=dict)
    replicas: tuple[Replica, ...] = ()


class Application(BaseModel):
    """One application; `deployed_app_config` is the config it was deployed from, if it was."""

    status: str
    message: str = ""
    route_prefix: str | None = None
    deployed_app_config: dict[str, Any] | None = None
    deployments: dict[str, Deployment] = Field(default_factory=dict)


class RayInstance(BaseModel):
    """Everything that Ray Serve runs on the cluster."""

    applications: dict[str, Application] = Field(default_factory=dict)
    http_options: dict[str, Any] | None = None
    grpc_options: dict[str, Any] | None = None
    proxy_location: str | None = None
    target_capacity: float | None = None
    restores_unset_config_options: bool = False

    def config(self, name: str, app_config: Mapping[str, Any]) -> dict[str, Any]:
        """Return the whole cluster's config with one application's replaced.

        An application left out would be deleted; those not deployed from a config are not touched.
        """
        others = (
            app.deployed_app_config
            for other, app in self.applications.items()
            if other != name and app.deployed_app_config is not None
        )
        rest = {
            key: value
            for key in ("http_options", "grpc_options", "proxy_location", "target_capacity")
            if (value := getattr(self, key)) is not None
        }
        return {**rest, "applications": [*others, dict(app_config)]}


class Node(BaseModel):
    """A machine of the cluster."""

    state: str
    resources_total: dict[str, float] = Field(default_factory=dict)


class _NodesReply(BaseModel):
    nodes: tuple[Node, ...] = Field(validation_alias=AliasPath("data", "result", "result"))


class _Version(BaseModel):
    ray_version: str


class _Target(BaseModel):
    targets: tuple[str, ...]


ReplyT = TypeVar("ReplyT")


class Dashboard:
    """A running Ray cluster.

    Every method raises DeviceLost without a response, and ActuationError if the response is a refusal
    or unexpected.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        hint = "check that it is running (`ray status`) and that this is its dashboard's address"
        self._http = LocalHttp(url, "Ray", hint, ANSWER_S)
        self.client, self.close = self._http.client, self._http.close

    def version(self) -> str:
        """Return Ray's version."""
        return self._parsed(
            TypeAdapter(_Version), self._http.call("GET", "/api/version")
        ).ray_version

    def nodes(self) -> tuple[Node, ...]:
        """Return the machines that are up."""
        reply = self._http.call("GET", "/api/v0/nodes?detail=1")
        nodes = self._parsed(TypeAdapter(_NodesReply), reply).nodes
        return tuple(node for node in nodes if node.state == "ALIVE")

    def metrics_urls(self) -> tuple[str, ...]:
        """Return the URLs of the cluster's metrics, one per machine."""
        reply = self._http.call("GET", "/api/prometheus/sd")
        groups = self._parsed(TypeAdapter(tuple[_Target, ...]), reply)
        return tuple(f"http://{target}/metrics" for group in groups for target in group.targets)

    def instance(self) -> RayInstance:
        """Return everything that Ray Serve runs."""
        return self._parsed(
            TypeAdapter(RayInstance), self._http.call("GET", "/api/serve/applications/")
        )

    def deploy(self, config: Mapping[str, Any]) -> None:
        """Request a config of the whole cluster; return before it is in force."""
        if REDACTED in json.dumps(config):
            raise ActuationError(
                f"Ray at {self.url} hides part of the config, so it cannot be written back",
                hint="start Ray with RAY_DASHBOARD_REDACT_RUNTIME_ENV=0",
            )
        self._http.call("PUT", "/api/serve/applications/", dict(config))

    def _parsed(self, kind: TypeAdapter[ReplyT], response: httpx2.Response) -> ReplyT:
        """Return a typed response. Raises ActuationError."""
        return self._http.parsed(kind, response, "Ray Serve's", "supported: Ray 2.60")
