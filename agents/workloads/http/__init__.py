"""A service on this machine, set and measured as the file of `service:/PATH/FILE.toml` describes.

The file stays on the host: the tuner gets the knobs' names and values, never a URL, a command, a file
or a unit. No shell reads a command.

`name`; `url` (loopback), if any request uses HTTP; `version`, a text: change it when former measurements
    no longer count. A path may be a whole address on this machine.
`[[knob]]`: `name`, `values` in their natural order, `default`; `role` (`tuner.core.Role`);
    `seconds`, the time until a change reads back; `restart = true` if a change restarts the service.
    `set = { method, path, json }`: the request that sets it; `"{value}"` in `json` or in `path` is
    replaced by the value; any 2xx is a success.
    Or `write = { file, json }` or `{ file, text }`; `at = { VALUE = … }` is the content for special values.
    Or `unit = { name, property }`: a property of a systemd unit, set until the next boot.
    `read = { path, json }`: the source of the value in force; `json` is the path in the answer, like
    `pool.workers`, with indices for lists. Or `{ command, pattern }`: the output of a command, or the
    last match of the pattern's group in it. Without `read` only the file is read back, which is unproven.
    `table = { by, row, most }`: a plan by the signal `by` is written as rows that replace `"{table}"` in
    `json`. Each row has its load range and value in place of `"{first}"`, `"{last}"` and `"{value}"`.
    `effect = { counter, per, labels, at_most }`: in every window the ratio of the two counters must be
    equal to the value, or at most the value.
`[restart]`: `command`, a list of words, runs once after files were written; it contains no value. Then
    `ready`, a path, must answer 2xx within `seconds`.
`[reload]`: the same, or a `signal` (HUP, USR1, USR2), for knobs without `restart`.
`[process]`: `unit`, or `pid_file` and `program`: the processes for the CPU time and for the signal.
`[latency]`: `histogram`, by its name in the Prometheus text at `metrics` (`/metrics`), over the series
    that have all of `labels`; `unit` is `s` or `ms`. It counts good answers.
`[log]`: `file`, `pattern` with named groups (`latency_s`, `latency_ms`, `items`; each other is a metric),
    `failed`, and `metric = [{ name, better, unit }]`, the meaning of a group.
`[[json]]`: `name`, `path`, `json`, `per`, `better`, `unit`: a number (true: 1), or its growth per another.
`[failures]`, `[items]`: `counter`, and `labels`, of the text; `[items]` if the unit of work is not a
    request.
`[signal]`: `name` and `gauge`, a signal that plans can follow.
`[[histogram]]`: `name`, `histogram`, `labels`, `unit`: the metrics NAME_p50_ms, _p95_ms and _p99_ms.
`[[ratio]]`: `name`; `counter`, less those in `minus`, divided by `per`, with `labels`. `by` names a label
    that counts from 0: one metric per position, whose number from 1 replaces `{position}` in `name`.
`[load]`: our load generator sends `method` to `path` with `headers` and `body`, the file `body_file`, or
    each line of the file `bodies` in turn: `callers` in parallel, each after its last answer, or
    `rate_per_s` at random moments, or at the times of the CSV file `trace` (column `arrival_s`);
    `timeout_s` for an answer, `warm_up_s` before a window counts. The generator measures the latency.
    With `stream = true` the answers are streams of an OpenAI API: the metrics ttft_p50_ms, ttft_p95_ms,
    ttft_p99_ms and the same of tpot, and items are output tokens; `good = { ttft_ms, tpot_ms }` are the
    limits of a request that counts into goodput_per_s.
    Or `run`, a list of words: a program that sends the load, with `runs` complete runs per window, and
    `folder`, `env`, `timeout_s`, `[load.items]` (`count`, `json` or `pattern`) and `[[load.metric]]`.
`[idle]`: with our load, each trial also measures the devices' power between requests: idle_w with the model
    in memory, idle_unloaded_w without it. `unloaded = { path, json }` is the flag that the model has left
    memory (true), or the list of loaded models (empty); `delay` names the knob with the seconds after the
    last request until the model is unloaded.
`always_busy = true`: the service always has work, like a video pipeline, so its rate is a result of the
    setting, not a load.
`cpu_time = false`: the process that reports its CPU time is not the whole service.

Without `[process]`, the CPU time is `process_cpu_seconds_total` of the text, and a change of
`process_start_time_seconds` shows a restart, after which the held setting is applied again.
"""

from agents.workloads.http.attach import attach

__all__ = ["attach"]
