"""The bench's fine-tuning: requests one step after the other, and prints its steps as JSON lines."""

from __future__ import annotations

import http.client
import json
import sys

if __name__ == "__main__":
    accelerator = http.client.HTTPConnection("127.0.0.1", int(sys.argv[1]))
    steps = 0
    while True:
        accelerator.request("POST", "/step", b"{}")
        accelerator.getresponse().read()
        steps += 1
        print(json.dumps({"steps": steps}), flush=True)
