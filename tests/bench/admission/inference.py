"""A small inference server of the bench: `POST /infer` multiplies matrices on one thread."""

from __future__ import annotations

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import torch

SIZE, LAYERS = 192, 12
WEIGHTS = [torch.randn(SIZE, SIZE) / SIZE**0.5 for _ in range(LAYERS)]


class Handler(BaseHTTPRequestHandler):
    """One request is one item of a small network."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", "0")))
        with torch.inference_mode():
            value = torch.ones(32, SIZE)
            for weight in WEIGHTS:
                value = torch.tanh(value @ weight)
        answer = b"{}" if bool(torch.isfinite(value).all()) else b'{"error": 1}'
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, format: str, *args: object) -> None:
        pass


if __name__ == "__main__":
    torch.set_num_threads(1)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    print(server.server_address[1], flush=True)
    sys.stdout.close()
    server.serve_forever()
