"""Start llama-server, have it write 64 texts, and stop it: python llama_server.py PROGRAM MODEL.gguf."""

import argparse
import json
import socket
import subprocess
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor

words = argparse.ArgumentParser()
words.add_argument("program")
words.add_argument("model")
words.add_argument("--threads", default="-1", help="-1: one per core, the default")
words.add_argument("--parallel", default="1", help="texts at once")
words.add_argument("--ubatch", default="512", help="tokens of a prompt at once")
words.add_argument("--cache", default="f16", help="type of the cache")
given = words.parse_args()
with socket.create_server(("127.0.0.1", 0)) as free:
    port = free.getsockname()[1]
url = f"http://127.0.0.1:{port}"
options = ["-t", given.threads, "-np", given.parallel, "-c", str(1024 * int(given.parallel))]
options += ["-ub", given.ubatch, "-ctk", given.cache, "-ctv", given.cache, "-fa", "on"]
command = [given.program, "-m", given.model, "--port", str(port), *options]
server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def ready() -> bool:
    """Return whether the server answers."""
    try:
        return bool(urllib.request.urlopen(f"{url}/health", timeout=5).status == 200)
    except OSError:
        return False


def written(number: int) -> int:
    """Return the number of tokens of one text."""
    request = {"prompt": f"{number} " + "word " * 40, "n_predict": 48, "ignore_eos": True}
    body = json.dumps({**request, "temperature": 0}).encode()
    with urllib.request.urlopen(f"{url}/completion", body, timeout=120) as answer:
        return int(json.load(answer)["tokens_predicted"])


try:
    while not ready():
        if server.poll() is not None:
            raise SystemExit(f"llama-server ended with {server.returncode}")
        time.sleep(0.05)
    with ThreadPoolExecutor(int(given.parallel)) as callers:
        tokens = sum(callers.map(written, range(64)))
finally:
    server.terminate()
    server.wait()
print(json.dumps({"tokens": tokens}))
