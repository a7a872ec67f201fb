"""Any program that runs to an end, by the file of `command:/PATH/FILE.toml`: a training, a transcode.

The file is the host's alone: the tuner learns of the knobs' names and values, never of a command.

`name`, and `version`, a text to be changed whenever former measurements no longer count.
`run`: the program, a list of words. No shell reads them. `"{knob}"` in a word represents that knob's value.
`[env]`: variables of its environment, with knobs in the same way. `folder`: where it is run.
`[[knob]]`: `name`, `values` in their natural order, `default`; `role` (`tuner.core.Role`).
`runs`: of how many whole runs a window is made, 4 by default and at least 3: the standard errors
    are the scatter between them. `timeout_s`: a run that takes longer is ended, and its trial failed.
`[items]`: what one run works on: `count`, or where it prints that, by `json` or `pattern`; else 1.
`[[metric]]`: what a run prints: `name`; `json`, the key of its last line that is a JSON object, where
    `loss.final` goes in, or `pattern`, a regular expression with one group, of which the last match counts;
    `better`, `less` or `more`; `unit`.

`latency_ms` is how long a run takes, `cpu_time_ms` the processor time of it and all it waits for, per item,
`throughput_per_s` the items per second, `energy_j` what the device's meter shows around it, per item.
"""

from agents.workloads.command.attach import attach

__all__ = ["attach"]
