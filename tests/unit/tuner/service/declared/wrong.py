"""Fleet files with one mistake each, and the line and key of its refusal."""

from __future__ import annotations

WEB = """
[exploration]
time_zone = "Europe/Berlin"
windows = [{ cron = "0 2 * * sat", hours = 4 }]

[[group]]
name = "web"
select = { board = "Sim*", rack = "b1" }
constraints = ["latency_p99_ms <= 1.2x baseline"]
policy = "scripted"
terms = { trials = 5 }

[[group.study]]
device = "d1"
constraints = ["latency_p99_ms <= 200"]
"""
"""A valid file for devices d0 and d1 in rack b1, and one in rack b2."""

POLICY = 'policy = "scripted"'
TERMS = "trials = 5"
TIGHT = '"latency_p99_ms <= 200"'
EXPLORING = "[exploration]"

WRONG = [
    # the replaced text, its replacement, the line of the error, and words of the error
    ("name =", "nmae =", 7, "did you mean name?"),
    ('name = "web"', 'name = ""', 7, "has no name"),
    ('name = "web"', "", 6, "name"),
    ('name = "web"', "name = 3", 7, "name must be a string"),
    ('name = "web"', 'name = "web', 7, "is not valid TOML"),
    ("[[group]]", "[[groups]]", 6, "unknown key 'groups'"),
    ("select = {", "select = { board", 8, "is not valid TOML"),
    ('select = { board = "Sim*", rack = "b1" }', "select = {}", 8, "select is empty"),
    ('rack = "b1"', "rack = 1", 8, "select"),
    (POLICY, 'policy = "bayes"', 10, "policy of d0"),
    (POLICY, f"{POLICY}\nchoices = {{ clock = [1] }}", 11, "clock"),
    (POLICY, f"{POLICY}\nchoices = {{ batch_size = [3] }}", 11, "batch_size"),
    (POLICY, f'{POLICY}\nobjective = "joy"', 11, "objective of d0"),
    (POLICY, f'{POLICY}\nseed = "one"', 11, "seed must be an integer"),
    (POLICY, f"{POLICY}\ntogether = 1", 11, "together must be a boolean"),
    (POLICY, f'{POLICY}\nexploration = {{ fixed = ["fan"] }}', 11, "fan"),
    (TIGHT, '"latency_p99_ms < 200"', 15, "constraints of d1"),
    (TIGHT, '"watts <= 200"', 15, "constraints of d1"),
    (TIGHT, f'{TIGHT}, "latency_p99_ms >= 300"', 15, "constraints of d1"),
    (f"[{TIGHT}]", TIGHT, 15, "constraints must be a list"),
    (TERMS, "trials = 0", 11, "trials"),
    (TERMS, "trails = 5", 11, "did you mean trials?"),
    (TERMS, f"{TERMS}, window_s = -1.0", 11, "window_s"),
    (TERMS, f'{TERMS}, safety = "bold"', 11, "safety"),
    (TERMS, f'{TERMS}, canary = "d9"', 11, "canary"),
    ("hours = 4", "hours = 0", 4, "hours"),
    ("0 2 * * sat", "0 2 * * 6", 4, "names of days"),
    ("0 2 * * sat", "0 2 30 feb *", 4, "never opens"),
    ("Europe/Berlin", "Europe/Bärlin", 3, "time_zone"),
    ('device = "d1"', 'device = "d2"', 14, "not in this group"),
    (EXPLORING, f"{EXPLORING}\nmax_time_share = 0.0", 3, "max_time_share"),
    (EXPLORING, f"{EXPLORING}\nmin_saving = 2", 3, "min_saving"),
    (EXPLORING, f"[notifications]\n{EXPLORING}", 2, "unknown key 'notifications'"),
]
