"""An engine behind the proxy, which restarts it with other flags; llama.cpp's draft length.

`jouletune workload proxy` speaks the engine's own API and adds `/knobs`, `/plan` and `/stats`
(`agents/workloads/engine/proxy.py`). `llama_cpp:http://127.0.0.1:8090` attaches to a llama-server's. The
arriving traffic is measured; with `#callers:4,prompts:FILE.json,tokens:64` after the address, our load
generator sends streamed completions. Items are tokens.

A length is accepted only if the timings of an answer show it (`draft_n`). llama.cpp as in
llama-cpp-python 0.3.16 uses the length in a request (`speculative.n_max`), which the proxy sets for the
current load. That of 0.3.36 ignores it, so a second server starts at the new length and takes over.
"""

from agents.workloads.engine.attach import attach

__all__ = ["attach"]
