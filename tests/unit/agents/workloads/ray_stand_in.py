"""A fake of Ray's dashboard, metrics and HTTP proxy, in the forms recorded from Ray 2.60."""

from __future__ import annotations

import copy
import json
import os
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

CODE: dict[str, Any] = {
    "num_replicas": 1,
    "max_ongoing_requests": 8,
    "max_queued_requests": -1,
    "user_config": {"max_batch_size": 4, "top_k": 5},
    "graceful_shutdown_timeout_s": 20.0,
    "ray_actor_options": {"num_cpus": 1.0},
}
"""The values of the stand-in's deployment unless its config has others."""
DEMO: dict[str, Any] = {
    "name": "demo",
    "route_prefix": "/demo",
    "import_path": "app:app",
    "deployments": [{"name": "Model", "user_config": {"max_batch_size": 4, "top_k": 5}}],
}
OTHER: dict[str, Any] = {"name": "other", "import_path": "other:app", "route_prefix": "/other"}
EDGES = ("1.0", "10.0", "20.0", "50.0", "100.0", "+Inf")
LABELS = 'Component="core_worker",NodeAddress="127.0.0.1",method="POST",route="/demo"'


class RayStandIn:
    """A cluster of some CPUs; other programs than Ray Serve use `busy` of them."""

    def __init__(self, cpus: float = 4.0) -> None:
        self.lock = threading.Lock()
        self.cpus = cpus
        self.busy = 0.0
        self.looks = 1
        """The number of reads until a change is in force."""
        self.declared: dict[str, dict[str, Any] | None] = {"demo": DEMO, "other": OTHER}
        self.code = copy.deepcopy(CODE)
        self.settling = 0
        self.restores = True
        self.fails = ""
        self.puts: list[dict[str, Any]] = []
        self.latencies_ms: list[float] = []
        self.failed = 0
        self.gate = threading.Event()
        self.gate.set()
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.pid = os.getpid()
        self.opened: list[Callable[[], None]] = []
        """The functions that close the sides opened by a test."""
        state = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            disable_nagle_algorithm = True
            wbufsize = -1

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
                route = f"{self.command} {self.path}"
                if self.command == "POST":
                    state.gate.wait(20)
                with state.lock:
                    status, content = state.answers.get(route) or state.reply(route, body)
                self.send_response(status)
                self.send_header("Transfer-Encoding", "chunked")
                chunk = b"%x\r\n%s\r\n" % (len(content), content) if content else b""
                with suppress(ConnectionError):  # a load's callers may have ended
                    self.end_headers()
                    self.wfile.write(chunk + b"0\r\n\r\n")

            do_GET = do_PUT = do_POST = answer

            def log_message(self, format: str, *args: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def spec(self) -> str:
        return f"ray:{self.url}/demo/Model"

    @property
    def whole(self) -> dict[str, Any]:
        """Return the deployment's values: those of its config, else of its code."""
        declared = self.declared["demo"] or {}
        entries = {e["name"]: e for e in declared.get("deployments", [])}
        return {**self.code, **entries.get("Model", {}), "name": "Model"}

    def instance(self) -> dict[str, Any]:
        whole = self.whole
        requested = int(whole.get("num_replicas") or 1)
        each = float(whole["ray_actor_options"]["num_cpus"])
        room = self.cpus - self.busy
        running = requested if not each else min(requested, int(room / each))
        self.settling = max(0, self.settling - 1)
        done = running == requested and not self.settling
        replicas = [{"state": "RUNNING", "pid": self.pid}] * running
        short = f"Deployment 'Model' has taken more than 30s to be scheduled on {room:g} CPUs"
        model = {
            "name": "Model",
            "status": "HEALTHY" if done else "UPDATING",
            "status_trigger": "CONFIG_UPDATE_COMPLETED",
            "message": "" if running == requested else short,
            "deployment_config": whole,
            "target_num_replicas": requested,
            "required_resources": {"CPU": each},
            "replicas": replicas + [{"state": "STARTING", "pid": None}] * (requested - running),
        }
        about = {"docs_path": None, "last_deployed_time_s": 1.0, "source": "declarative"}
        demo = {
            "name": "demo",
            "route_prefix": "/demo",
            "status": "DEPLOY_FAILED" if self.fails else ("RUNNING" if done else "DEPLOYING"),
            "message": self.fails,
            "deployed_app_config": self.declared["demo"],
            "deployments": {"Model": model},
            **about,
        }
        other = {
            "name": "other",
            "route_prefix": "/other",
            "status": "RUNNING",
            "message": "",
            "deployed_app_config": self.declared["other"],
            "deployments": {},
            **about,
        }
        return {
            "proxy_location": "EveryNode",
            "http_options": {"host": "0.0.0.0", "port": self._server.server_address[1]},
            "grpc_options": {"port": 9000},
            "applications": {"demo": demo, "other": other},
            "target_capacity": None,
            "restores_unset_config_options": self.restores,
        }

    def reply(self, route: str, body: bytes) -> tuple[int, bytes]:
        if route == "PUT /api/serve/applications/":
            return self._deploy(json.loads(body))
        if route == "POST /demo":
            self.latencies_ms.append(15.0)
            return 200, b'{"label": 1}'
        if route == "GET /metrics":
            return 200, self.metrics().encode()
        node = {"state": "ALIVE", "resources_total": {"CPU": self.cpus, "memory": 1e9}}
        content: Mapping[str, Any] = {
            "GET /api/version": {"version": "4", "ray_version": "2.60.0"},
            "GET /api/v0/nodes?detail=1": {
                "data": {"result": {"total": 1, "result": [node, {"state": "DEAD"}]}}
            },
            "GET /api/prometheus/sd": [
                {"labels": {"job": "ray"}, "targets": [self.url.removeprefix("http://")]}
            ],
            "GET /api/serve/applications/": self.instance(),
        }
        return 200, json.dumps(content[route]).encode()

    def metrics(self) -> str:
        """Return the counters as Ray exposes them, with another application and another metric."""
        name = "ray_serve_http_request_latency_ms"
        lines = [f"# TYPE {name} histogram", 'ray_node_cpu{ip="127.0.0.1"} 1.0']
        for status, values in (("200", self.latencies_ms), ("500", [5.0] * self.failed)):
            for app in ("demo", "other"):
                if not values:
                    continue
                own = f'{LABELS},application="{app}",status_code="{status}"'
                for edge in EDGES:
                    count = sum(1 for value in values if value <= float(edge))
                    lines.append(f'{name}_bucket{{{own},le="{edge}"}} {count:.1f}')
                lines.append(f"{name}_count{{{own}}} {len(values):.1f}")
                lines.append(f"{name}_sum{{{own}}} {sum(values):.1f}")
        return "\n".join(lines) + "\n"

    def _deploy(self, config: dict[str, Any]) -> tuple[int, bytes]:
        self.puts.append(config)
        sent = {app["name"]: app for app in config["applications"]}
        self.declared = {name: sent.get(name) for name in self.declared}
        self.settling = self.looks
        return 200, b""

    def close(self) -> None:
        self.gate.set()
        for close in self.opened:
            close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
