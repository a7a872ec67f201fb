"""Attaches to a running deployment: parses its address, reads its knobs, and measures its requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from urllib.parse import unquote

import psutil

from agents.host.http.local_http import local_url
from agents.host.processes.ownership import WorkloadIdentity
from agents.load.exposition import histogram, scrape
from agents.load.generator import LoadShape
from agents.load.http_caller import HttpCaller
from agents.load.meter import LoadMeter
from agents.load.prometheus import ARRIVALS, Figures, PrometheusMeter
from agents.target.side import Side
from agents.workloads.ray.actuator import (
    Address,
    DeploymentActuator,
    OriginalDeploymentFile,
    declared_config,
    original_at,
)
from agents.workloads.ray.dashboard import Dashboard, Node, RayInstance
from agents.workloads.ray.deployment import (
    BATCH,
    NO_BATCH,
    NO_REPLICAS,
    REPLICAS,
    named_in,
    setting_of,
    space_for,
    taken_by_others,
    version_of,
)
from tuner.core import (
    Clock,
    InvalidInput,
    MeasurementError,
    Metric,
    NotFound,
    Scope,
    Space,
    TuningError,
    reraised,
)

HINT = "write ray:http://127.0.0.1:8265/APPLICATION/DEPLOYMENT"
KEPT = "ray-serve.json"
LOAD_SETTLE_S = 1.0

HTTP_LATENCY = "ray_serve_http_request_latency_ms"
"""Per request, as Ray's HTTP proxy sees it: waiting, routing and every deployment on its way."""
REPORT_S = 10.0
"""Age in s of Ray's metrics, at most.

Ray sends them every 10 s by default (`RAY_metrics_report_interval_ms`); measured on Ray 2.60, 2 to
10 s after the requests.
"""


class RayFigures:
    """Read an application's figures from every machine of the cluster."""

    def __init__(self, dashboard: Dashboard, application: str) -> None:
        self._dashboard = dashboard
        self._application = application

    def read(self) -> Figures:
        """Return the present values. Raises MeasurementError."""
        with reraised(MeasurementError, TuningError):
            urls = self._dashboard.metrics_urls()
        samples = [s for url in urls for s in scrape(self._dashboard.client, url, (HTTP_LATENCY,))]

        def ours(labels: Mapping[str, str], *, good: bool) -> bool:
            answered = labels.get("status_code", "")[:1] in ("1", "2", "3")
            return labels.get("application") == self._application and answered is good

        good = histogram(samples, HTTP_LATENCY, lambda labels: ours(labels, good=True))
        bad = histogram(samples, HTTP_LATENCY, lambda labels: ours(labels, good=False))
        return Figures(good, bad.n)


class RayProcesses:
    """The CPU time of all of Ray on this host: its raylet and the raylet's descendants.

    Replicas, proxy and controller are the raylet's children; Ray's own work for them is a cost of
    serving. The control store and the dashboard are not included.
    """

    def __init__(self, replica: int) -> None:
        """Find the raylet from one of its replicas.

        Raises MeasurementError if it is on another host.
        """
        try:
            parent = psutil.Process(replica).parent()
        except psutil.Error as error:
            raise MeasurementError(f"the replica {replica} is not on this host: {error}") from None
        if parent is None or parent.name() != "raylet":
            raise MeasurementError(f"the process {replica} of this host is not a Ray replica")
        self._raylet = parent

    def cpu_s(self) -> float:
        """Return the CPU seconds so far, of ended processes too. Raises MeasurementError."""
        try:
            own = self._raylet.cpu_times()
            total = own.user + own.system + own.children_user + own.children_system
            children = self._raylet.children(recursive=True)
        except psutil.Error as error:
            raise MeasurementError(
                f"Ray has ended on this host: {error}", hint="restart it"
            ) from None
        for child in children:
            try:
                times = child.cpu_times()
            except psutil.NoSuchProcess:
                continue
            total += times.user + times.system
        return float(total)


class CpuTotal:
    """The CPU time since a start; a process that ends meanwhile subtracts nothing."""

    def __init__(self, find: Callable[[], RayProcesses] | None) -> None:
        """Use `find` to look up the processes, as Ray may have been restarted.

        Raises MeasurementError.
        """
        self._processes = None if find is None else find()
        self._before = 0.0 if self._processes is None else self._processes.cpu_s()
        self._most = 0.0

    def __call__(self) -> Mapping[str, float]:
        """Return the total; empty if unknown. Raises MeasurementError."""
        if self._processes is None:
            return {}
        self._most = max(self._most, self._processes.cpu_s() - self._before)
        return {"cpu_s": self._most}


@dataclass(frozen=True, slots=True)
class Spec:
    """A parsed workload address; `callers` is 0 if no load of ours is requested."""

    url: str
    address: Address
    callers: int = 0
    body: bytes = b""


def attach(spec: str, *, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Attach to a running deployment.

    Raises:
        InvalidInput: no such address, application or deployment, or one that cannot be changed.
        DeviceLost, ActuationError: Ray does not answer, or not as documented.
    """
    parsed = parse(spec)
    dashboard = Dashboard(parsed.url)
    try:
        return _attached(parsed, dashboard, seed, state_dir, clock)
    except NotFound as error:
        dashboard.close()
        raise InvalidInput(error.message, hint=error.hint) from None
    except TuningError:
        dashboard.close()
        raise


def parse(spec: str) -> Spec:
    """Parse an address. Raises InvalidInput."""
    parts = local_url(spec.removeprefix("ray:"), f"{HINT}, on a machine that runs Ray")
    names = [unquote(name) for name in parts.path.split("/") if name]
    if len(names) != 2:
        raise InvalidInput(f"{spec!r} is not a Ray deployment", hint=HINT)
    callers, body = _parsed_load(spec, parts.fragment)
    return Spec(f"http://{parts.netloc}", Address(*names), callers, body)


def _parsed_load(spec: str, fragment: str) -> tuple[int, bytes]:
    """Parse the number of callers and the body from `callers:4,body:FILE`. Raises InvalidInput."""
    if not fragment:
        return 0, b""
    options = dict(option.partition(":")[::2] for option in fragment.split(","))
    number, file = options.pop("callers", ""), options.pop("body", "")
    if options or not number.isascii() or not number.isdigit() or int(number) < 1:
        raise InvalidInput(
            f"cannot read the part after the # of {spec!r}",
            hint="write #callers:4, or #callers:4,body:FILE",
        )
    try:
        return int(number), Path(unquote(file)).read_bytes() if file else b""
    except OSError as error:
        raise InvalidInput(
            f"cannot read the body {file}: {error.strerror}",
            hint="name a file that the agent can read",
        ) from None


def _attached(spec: Spec, dashboard: Dashboard, seed: int, state_dir: Path, clock: Clock) -> Side:
    """Return the side of a deployment. Raises NotFound, InvalidInput."""
    address = spec.address
    instance, nodes, ray = dashboard.instance(), dashboard.nodes(), dashboard.version()
    app = address.application_in(instance)
    whole = app.deployments[address.deployment].deployment_config
    declared = declared_config(app, address)
    version = version_of(declared, whole)
    file = OriginalDeploymentFile(state_dir / KEPT)
    named = named_in(declared, address.deployment)
    original = original_at(file, version, setting_of(whole), named)
    taken = taken_by_others(instance, address.application, address.deployment)
    space = space_for(original.setting, whole, nodes, taken)
    replicas = partial(_replicas, dashboard, address)
    processes, cannot = _processes(replicas, nodes)
    meter, shape = _meter(spec, dashboard, instance, processes, clock, seed)

    return Side(
        name=f"ray-{address.application}-{address.deployment}",
        kind="ray-serve",
        board=spec.url,
        version=f"Ray {ray}, {version}",
        space=space,
        metrics=_metrics(shape, processes),
        actuator=DeploymentActuator(dashboard, address, space, original, file, clock),
        meter=meter,
        settle_s=LOAD_SETTLE_S if shape else REPORT_S,
        cannot={**cannot, **_missing(space)},
        source=f"our load generator, {shape}" if shape else "Ray Serve's HTTP latency histogram",
        identity=WorkloadIdentity(processes=replicas),
    )


def _meter(
    spec: Spec,
    dashboard: Dashboard,
    instance: RayInstance,
    processes: Callable[[], RayProcesses] | None,
    clock: Clock,
    seed: int,
) -> tuple[PrometheusMeter | LoadMeter, LoadShape | None]:
    """Return the meter, and the shape of the load if the agent sends it."""
    counting = partial(CpuTotal, processes)
    if not spec.callers:
        figures = RayFigures(dashboard, spec.address.application)
        figures.read()
        return PrometheusMeter(figures.read, counting, clock, REPORT_S), None
    route = spec.address.application_in(instance).route_prefix
    if route is None:
        raise InvalidInput(
            f"the application {spec.address.application!r} has no HTTP route",
            hint="remove #callers to send no load",
        )
    http = instance.http_options or {}
    host = str(http.get("host") or "127.0.0.1")
    host = "127.0.0.1" if host in ("0.0.0.0", "::") else host
    port, path = int(http.get("port") or 8000), str(http.get("root_path") or "") + route
    shape = LoadShape(callers=spec.callers)

    def connect() -> HttpCaller:
        return HttpCaller(host, port, path, body=spec.body)

    return LoadMeter(connect, shape, counting, clock, seed), shape


def _metrics(
    shape: LoadShape | None, processes: Callable[[], RayProcesses] | None
) -> tuple[Metric, ...]:
    """Return the metrics, by the load's sender and the known CPU time."""
    names = ["latency_p50_ms", "latency_p99_ms", "throughput_per_s"]
    own = [Metric("latency_mean_ms", scope=Scope.SERVICE)] if shape else [ARRIVALS]
    cpu = [Metric("cpu_time_ms", scope=Scope.PROCESS)] if processes else []
    return (*(Metric(name, scope=Scope.SERVICE) for name in names), *own, *cpu)


def _replicas(dashboard: Dashboard, address: Address) -> list[int]:
    """Return the process ids of the deployment's replicas. Raises DeviceLost, ActuationError."""
    app = address.application_in(dashboard.instance())
    deployment = app.deployments.get(address.deployment)
    return [r.pid for r in deployment.replicas if r.pid is not None] if deployment else []


def _processes(
    replicas: Callable[[], Sequence[int]], nodes: Sequence[Node]
) -> tuple[Callable[[], RayProcesses] | None, dict[str, str]]:
    """Return a finder of Ray's processes if all are on this host, else why their CPU time is unknown."""
    if len(nodes) > 1:
        return None, {"cpu_time_ms": "Ray runs on several hosts, but only this host's is counted"}

    def find() -> RayProcesses:
        with reraised(MeasurementError, TuningError):
            pids = replicas()
        if not pids:
            raise MeasurementError("no process of a replica was found")
        return RayProcesses(pids[0])

    try:
        find()
    except MeasurementError as error:
        return None, {"cpu_time_ms": error.message}
    return find, {}


def _missing(space: Space) -> dict[str, str]:
    """Return the knobs that the deployment lacks, with the reasons."""
    names = {knob.name for knob in space.knobs}
    reasons = {REPLICAS: NO_REPLICAS, BATCH: NO_BATCH}
    return {name: why for name, why in reasons.items() if name not in names}
