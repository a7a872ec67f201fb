"""Any HTTP service on this machine, set and measured as the file of `service:/PATH/FILE.toml` says.

The file is the host's alone: the tuner learns of the knobs' names and values, never of a URL.

`name`, `url` (loopback), and `version`, a text to be changed whenever former measurements no longer
    count.
`[[knob]]`: `name`, `values` in their natural order, `default`; `role` (`tuner.core.Role`);
    `seconds`, what a change takes until it reads back; `restart = true` where it restarts the service.
    `set = { method, path, json }`: sent to change it, with the value itself in the place of the text
    `"{value}"` in `json`; any answer 2xx is good. `read = { path, json }`: where what is in force is
    read, `json` the way to it through the answer: `pool.workers`, with numbers for places in lists.
    In place of `set`, `write = { file, json }` or `{ file, text }`, with `at = { VALUE = … }` for what is
    written otherwise; without a `read` the file is what is read back.
    `table = { by, row, most }`: a plan by the signal `by` is written as rows, each with `"{first}"`,
    `"{last}"` and `"{value}"` in their places, all of them in the place of `"{table}"` in `json`.
    `effect = { counter, per, labels, at_most }`: in every window the ratio of the two counters must be
    the value, or at most.
`[restart]`: `command`, a list of words that is run once after files were written; then `ready`, a path,
    must answer 2xx within `seconds`. No shell, and no value in it.
`[latency]`: `histogram`, by its name in the Prometheus text at `metrics` (`/metrics`), over the series
    that have all of `labels`; `unit` is `s` or `ms`. It counts good answers.
`[failures]`, `[items]`: `counter`, and `labels`, of the same text; `[items]` where work is counted in
    something else than requests.
`[signal]`: `name` and `gauge`, what plans can go by.
`[[histogram]]`: `name`, `histogram`, `labels`, `unit`: the metrics NAME_p50_ms and NAME_p99_ms.
`[[ratio]]`: `name`, and `counter` less those in `minus`, per `per`, with `labels`; with `by`, a label that
    counts from 0, one metric for each of its places, from 1 on, in the place of `{position}` in `name`.
`[load]`: where it is there, our load generator sends `method` to `path` with `body`, or each line of the
    file `bodies` in turn: `callers` at once, each after its last answer, or `rate_per_s` at random
    moments; `timeout_s` for an answer. Latency is then what it sees.
`always_busy = true`: it has work at any moment, as a video pipeline or a batch job has, so that its rate is
    what it achieves and no load that comes and goes.
`cpu_time = false`: the process that tells its CPU time is not the whole service.

What the text tells as `process_cpu_seconds_total` is the service's CPU time. Where it tells
`process_start_time_seconds`, a service that was started again gets what is held anew.
"""

from agents.workloads.http.attach import attach

__all__ = ["attach"]
