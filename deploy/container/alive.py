"""Whether the process of this container answers: `alive.py tuner|agent|actuator`; exits with 0 if it does.

Standard library, started with -ISs: a probe costs some hundredths of a second of a core.
"""

import json
import socket
import ssl
import sys

PATIENCE_S = 8.0
GET = b"GET %s HTTP/1.0\r\nHost: localhost\r\n\r\n"
SOCKETS = {
    "actuator": "/run/jouletune/actuator.sock",
    "agent": "/run/jouletune-agent/metrics.sock",
}
TUNER = ("127.0.0.1", 8790)


def answer(name: str) -> bytes:
    """Return the first line that a process answers. Raises OSError where it does not."""
    if name == "tuner":
        return told(secured(socket.create_connection(TUNER, PATIENCE_S)), GET % b"/v1/health")
    request = b'{"verb": "capabilities"}\n' if name == "actuator" else GET % b"/metrics"
    with socket.socket(socket.AF_UNIX) as line:
        line.settimeout(PATIENCE_S)
        line.connect(SOCKETS[name])
        return told(line, request)


def secured(line: socket.socket) -> socket.socket:
    """Speak TLS on a connection, to whatever certificate: it is this container's own process."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context.wrap_socket(line)


def told(line: socket.socket, request: bytes) -> bytes:
    """Send a request and return the first line of its answer."""
    with line, line.makefile("rb") as reader:
        line.sendall(request)
        return reader.readline()


def main(name: str) -> int:
    """Return 0 where the process answers well, else say why it does not."""
    try:
        first = answer(name)
        well = json.loads(first)["ok"] if name == "actuator" else first.split()[1] == b"200"
    except (OSError, ValueError, IndexError) as error:
        first, well = str(error).encode(), False
    if not well:
        sys.stderr.write(f"{name} does not answer: {first[:200]!r}\n")
    return 0 if well else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
