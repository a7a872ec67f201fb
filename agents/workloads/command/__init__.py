"""A program that runs to an end, such as a training, described by the file of `command:/PATH/FILE.toml`.

The file stays on the host: the tuner gets the knobs' names and values, never a command.

`name`; `version`, a text: change it when former measurements no longer count.
`run`: the program, a list of words. No shell reads them. `"{knob}"` in a word becomes the knob's value.
`[env]`: variables of its environment, with knobs in the same way. `folder`: its working directory.
`[[knob]]`: `name`, `values` in their natural order, `default`; `role` (`tuner.core.Role`).
`runs`: the number of complete runs per window, 4 by default and at least 3, as the standard errors are
    the scatter between runs. `timeout_s`: a run that takes longer is ended, and its trial has failed.
`[items]`: the number of items per run: `count`, or a printed number, by `json` or `pattern`; else 1.
`[[metric]]`: a printed metric: `name`; `json`, a key of the last line that is a JSON object, where
    `loss.final` is a nested key, or `pattern`, a regular expression with one group whose last match
    counts; `better`, `less` or `more`; `unit`.

`latency_ms` is the duration of a run; `cpu_time_ms` the CPU time of the run and of the children that it
waits for, per item; `throughput_per_s` the items per second; `energy_j` the device's energy during the
run, per item.
"""

from agents.workloads.command.attach import attach

__all__ = ["attach"]
