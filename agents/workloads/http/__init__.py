"""Any HTTP service on this machine, set and measured as the file of `service:/PATH/FILE.toml` says.

The file is the host's alone: the tuner learns of the knobs' names and values, never of a URL.

`name`, `url` (loopback), and `version`, a text to be changed whenever former measurements no longer
    count.
`[[knob]]`: `name`, `values` in their natural order, `default`; `role` (`tuner.core.Role`);
    `seconds`, until a change reads back; `restart = true` where a change restarts the service.
    `set = { method, path, json }`: sent to change it, with the value itself in the place of the text
    `"{value}"` in `json`; any answer 2xx is good. `read = { path, json }`: where what is in force is
    read, `json` the way to it through the answer: `pool.workers`, with numbers for places in lists.
`[latency]`: `histogram`, by its name in the Prometheus text at `metrics` (`/metrics`), over the series
    that have all of `labels`; `unit` is `s` or `ms`. It counts good answers.
`[failures]`: `counter`, and `labels`, of the same text.
`[load]`: where it is there, our load generator sends `method` to `path` with `body`: `callers` at once,
    each after its last answer, or `rate_per_s` at random moments. Latency is then what it sees.

What the text tells as `process_cpu_seconds_total` is the service's CPU time. Where it tells
`process_start_time_seconds`, a service that was started again gets what is held anew.
"""

from agents.workloads.http.attach import attach

__all__ = ["attach"]
