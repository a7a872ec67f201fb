"""Any service on this machine, set and measured as the file of `service:/PATH/FILE.toml` says.

The file is the host's alone: the tuner learns of the knobs' names and values, never of a URL, a command, a
file or a unit. No shell reads a command.

`name`; `url` (loopback), where any request uses HTTP; `version`, a text to be changed
    whenever former measurements no longer count. A path may be a whole address on this machine.
`[[knob]]`: `name`, `values` in their natural order, `default`; `role` (`tuner.core.Role`);
    `seconds`, what a change takes until it reads back; `restart = true` where it restarts the service.
    `set = { method, path, json }`: sent to change it, with the value itself instead of the text
    `"{value}"` in `json`, or in `path`; any answer 2xx is good.
    Or `write = { file, json }` or `{ file, text }`, with `at = { VALUE = … }` for values that need
    something else written.
    Or `unit = { name, property }`: of a systemd unit, until the next boot.
    `read = { path, json }`: where what is in force is read, `json` the way to it through the answer:
    `pool.workers`, with numbers for places in lists; or `{ command, pattern }`: what a command prints, or
    the last match of the pattern's group in it. Without a `read` a file is what is read back: unproven.
    `table = { by, row, most }`: a plan by the signal `by` is written as rows, each with `"{first}"`,
    `"{last}"` and `"{value}"` in their places, all of them instead of `"{table}"` in `json`.
    `effect = { counter, per, labels, at_most }`: in every window the ratio of the two counters must be
    the value, or at most.
`[restart]`: `command`, a list of words that is run once after files were written; then `ready`, a path,
    must answer 2xx within `seconds`. No value in it.
`[reload]`: the same, or a `signal` (HUP, USR1, USR2), for knobs without `restart`.
`[process]`: `unit`, or `pid_file` and `program`: whose CPU time is the service's, and who gets the signal.
`[latency]`: `histogram`, by its name in the Prometheus text at `metrics` (`/metrics`), over the series
    that have all of `labels`; `unit` is `s` or `ms`. It counts good answers.
`[log]`: `file`, `pattern` with named groups (`latency_s`, `latency_ms`, `items`; each other is a metric),
    `failed`, and `metric = [{ name, better, unit }]`, what a group means.
`[[json]]`: `name`, `path`, `json`, `per`, `better`, `unit`: a number (true: 1), or its growth per another.
`[failures]`, `[items]`: `counter`, and `labels`, of the text; `[items]` where work is counted in something
    else than requests.
`[signal]`: `name` and `gauge`, what plans can go by.
`[[histogram]]`: `name`, `histogram`, `labels`, `unit`: the metrics NAME_p50_ms and NAME_p99_ms.
`[[ratio]]`: `name`, and `counter` less those in `minus`, per `per`, with `labels`; with `by`, a label that
    counts from 0, one metric for each of its places, from 1 on, instead of `{position}` in `name`.
`[load]`: where it is there, our load generator sends `method` to `path` with `headers` and `body`, the
    file `body_file`, or each line of the file `bodies` in turn: `callers` in parallel, each after its last
    answer, or `rate_per_s` at random moments, or as the CSV file `trace` has them (column `arrival_s`);
    `timeout_s` for an answer, `warm_up_s` before a window counts. Latency is then what it sees.
    With `stream = true` the answers are streams of an OpenAI API: the metrics ttft_p50_ms, ttft_p99_ms,
    tpot_p50_ms and tpot_p99_ms, and items are output tokens; `good = { ttft_ms, tpot_ms }` are the limits
    of a request that counts into goodput_per_s.
    Or `run`, a list of words: a program that sends the load, `runs` whole runs a window, with `folder`,
    `env`, `timeout_s`, `[load.items]` (`count`, `json` or `pattern`) and `[[load.metric]]`.
`[idle]`: with our load, each trial also measures the devices' power between requests: idle_w with the model
    in memory, idle_unloaded_w without it. `unloaded = { path, json }` is the way to whether it has left
    memory: true, or an empty list of loaded models; `delay` names the knob of the seconds until that.
`always_busy = true`: it has work at any moment, as a video pipeline or a batch job has, so that its rate is
    what it achieves and no load that comes and goes.
`cpu_time = false`: the process that reports its CPU time is not the whole service.

Without `[process]`, what the text tells as `process_cpu_seconds_total` is the service's CPU time, and by
`process_start_time_seconds` a service that was started again gets the held setting again.
"""

from agents.workloads.http.attach import attach

__all__ = ["attach"]
