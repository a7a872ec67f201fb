"""The entries of docs/gallery.md: a program with its knobs, its objective and its limits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product

from tests.bench.tuned_command import TOP
from tuner.core import Constraint, Estimate

PROGRAMS = TOP / "docs/examples/gallery"


@dataclass(frozen=True)
class Entry:
    """One idea: the first value of each knob is the baseline, `off` the idea not used.

    `metrics` are the printed metrics, each with its better direction; the first is minimised.
    """

    title: str
    program: str
    knobs: Mapping[str, Sequence[str]]
    metrics: Sequence[str]
    limits: Sequence[str] = ()
    fixed: Sequence[str] = ()
    off: Mapping[str, str] = field(default_factory=dict)
    small: Sequence[str] = ()
    trials: int = 7

    @property
    def objective(self) -> str:
        """The metric that is minimised."""
        return self.metrics[0].partition(":")[0]

    @property
    def baseline(self) -> dict[str, str]:
        """The first value of each knob."""
        return {name: values[0] for name, values in self.knobs.items()}

    @property
    def settings(self) -> list[dict[str, str]]:
        """Every setting, the baseline first."""
        return [
            dict(zip(self.knobs, values, strict=True)) for values in product(*self.knobs.values())
        ]

    def words(self, setting: Mapping[str, str]) -> list[str]:
        """Return the arguments of the program at a setting."""
        return [*self.fixed, *(word for knob in setting.items() for word in _flag(*knob))]

    @property
    def template(self) -> list[str]:
        """The program's command, with placeholders for its knobs."""
        return [
            str(PROGRAMS / self.program),
            *self.words({name: f"{{{name}}}" for name in self.knobs}),
        ]

    @property
    def options(self) -> list[str]:
        """The options of its study, other than knobs."""
        limits = [word for limit in self.limits for word in ("--constraint", limit)]
        metrics = [word for metric in self.metrics for word in ("--metric", metric)]
        terms = ["--objective", self.objective, "--runs", "3", "--trials", str(self.trials)]
        return [*metrics, *(limits or ["--no-constraint"]), *terms]

    def keeps(self, means: Mapping[str, float], baseline: Mapping[str, float]) -> bool:
        """Return whether a setting's means keep every limit."""
        base = {name: Estimate(mean) for name, mean in baseline.items()}
        for text in self.limits:
            limit = Constraint.parse(text)
            value, own = limit.limit(base), means[limit.metric]
            assert value is not None
            if own > value if limit.op == "<=" else own < value:
                return False
        return True


def _flag(name: str, value: str) -> tuple[str, str]:
    return f"--{name}", value


ENTRIES = {
    "compression-slow": Entry(
        "gradient compression, link of 200 Mbit/s",
        "compression.py",
        {"compress": ("none", "topk", "1", "2", "4", "8", "16")},
        ("step_ms:less", "predicted_ms:less", "accuracy:more"),
        ("accuracy >= 0.95x baseline",),
        ("--mbit", "200"),
        small=("--steps", "2"),
        trials=6,
    ),
    "compression-fast": Entry(
        "gradient compression, link of 10 Gbit/s",
        "compression.py",
        {"compress": ("none", "topk", "1", "2", "4", "8", "16")},
        ("step_ms:less", "predicted_ms:less", "accuracy:more"),
        ("accuracy >= 0.95x baseline",),
        ("--mbit", "10000"),
        small=("--steps", "2"),
        trials=6,
    ),
    "checkpointing": Entry(
        "activation checkpointing × microbatch × precision",
        "checkpointing.py",
        {
            "checkpointing": ("1", "0"),
            "microbatch": ("16", "8", "4"),
            "precision": ("float32", "bfloat16"),
        },
        ("cpu_ms:less", "memory_mb:less", "loss:less"),
        ("memory_mb <= 105", "loss <= 1.01x baseline"),
        off={"checkpointing": "0", "microbatch": "4"},
        small=("--texts", "16"),
    ),
    "second-order": Entry(
        "K-FAC: interval of inversion × side of a factor",
        "second_order.py",
        {"interval": ("1", "2", "5", "10", "20", "0"), "side": ("256", "16")},
        ("cpu_ms:less", "accuracy:more", "memory_mb:less"),
        ("accuracy >= 0.98x baseline",),
        off={"interval": "0"},
        small=("--steps", "3"),
    ),
    "backward-share": Entry(
        "share of the backward pass × layers",
        "backward_share.py",
        {"share": ("1.0", "0.9", "0.75", "0.5", "0.25"), "layers": ("3", "2", "1")},
        ("cpu_ms:less", "accuracy:more"),
        ("accuracy >= 0.95x baseline",),
        small=("--steps", "3"),
    ),
    "embeddings": Entry(
        "embedding store: cache × deduplication × look-ahead",
        "embeddings.py",
        {
            "cache": ("0", "1000", "4000", "16000"),
            "deduplicate": ("0", "1"),
            "lookahead": ("0", "2", "4"),
        },
        ("cpu_us:less", "reads:less", "memory_mb:less"),
        ("memory_mb <= 2",),
        small=("--batches", "3"),
        trials=9,
    ),
    "precision": Entry(
        "precision × batch of inference",
        "precision.py",
        {"weights": ("float32", "bfloat16", "int8"), "batch": ("64", "16", "256", "1024")},
        ("cpu_ms:less", "accuracy:more", "memory_mb:less"),
        ("accuracy >= 0.98x baseline",),
        small=("--images", "1024"),
    ),
    "bits": Entry(
        "bits of the weights, least memory",
        "precision.py",
        {"weights": ("float32", "bfloat16", "6", "4", "3", "2")},
        ("memory_mb:less", "accuracy:more", "cpu_ms:less"),
        ("accuracy >= 0.98x baseline",),
        small=("--images", "1024"),
        trials=6,
    ),
    "experts": Entry(
        "mixture of experts: buffer × experts per token × batch",
        "experts.py",
        {"buffer": ("1", "4", "8", "16"), "top": ("4", "2", "1"), "batch": ("8", "32", "2")},
        ("cpu_ms:less", "quality:more", "memory_mb:less", "loads:less"),
        ("quality >= 0.8x baseline", "memory_mb <= 2"),
        small=("--tokens", "64"),
        trials=9,
    ),
    "stages-bulk": Entry(
        "parallel plan of two stages, eight batches under way",
        "stages.py",
        {"plan": ("one", "two", "pipeline"), "threads": ("2", "1"), "batch": ("4", "16", "64")},
        ("image_ms:less", "cpu_ms:less"),
        fixed=("--inside", "8"),
        small=("--images", "64"),
    ),
    "stages-single": Entry(
        "parallel plan of two stages, one batch at a time",
        "stages.py",
        {"plan": ("one", "two", "pipeline"), "threads": ("2", "1")},
        ("image_ms:less", "cpu_ms:less"),
        fixed=("--inside", "1", "--batch", "4"),
        small=("--images", "64"),
        trials=5,
    ),
}
