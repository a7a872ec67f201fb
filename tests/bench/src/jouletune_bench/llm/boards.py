"""Seconds and watts of prefill, decode and idling of a language model at each clock.

`L20` is a published table: one NVIDIA L20 under vLLM 0.10.1 with Qwen2.5-7B, locked to six clocks
(github.com/zydzydQAQ/pdblend at ee06750, results/v2/profile-7b-pdblend/profile.json). Its authors
fitted it to 36 prefill and 120 decode points. Between two of its clocks everything is interpolated
linearly.

For H100s we have no table by clock. Times at the highest clock are those of Splitwise's DGX-H100
(github.com/Mutinifni/splitwise-sim at 3780880, data/perf_model.csv, llama2-70b); the sources of the
watts are listed at `H100`. Their change with the clock, as a share of the highest, is the L20's:
its decode uses 27 % less energy at 36 % of the clock; for an H200 "up to 32 %" is reported (arXiv
2605.11999).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

Row = tuple[float, ...]


@dataclass(frozen=True, slots=True)
class Phases:
    """Times and powers at one clock, of all boards together.

    A prefill of n tokens takes a + b·n + c·n² seconds. A decode step of B requests with S tokens of
    context in total takes α + β·B + γ·S + δ·B² seconds. `prefill_w` is the power while prefilling,
    `decode_w` that at B = 0 and per request, `idle_w` that with the model loaded and no work.
    """

    prefill: Row
    decode: Row
    prefill_w: float
    decode_w: tuple[float, float]
    idle_w: float


@dataclass(frozen=True, slots=True, kw_only=True)
class LlmBoard:
    """A server: its boards, its clocks, and the times and powers of one model on it.

    `limit_w` caps the power of all boards: above it the clock is lowered. `kv_tokens` fit into the
    cache; a step prefills at most `chunk_tokens`; at most `most_requests` decode at a time. A
    change of the clock takes effect within `switch_s`, uniformly distributed.
    """

    board: str
    model: str
    clocks_mhz: tuple[int, ...]
    measured_mhz: tuple[int, ...]
    phases: tuple[Phases, ...]
    limit_w: float
    kv_tokens: int
    chunk_tokens: int = 2048
    most_requests: int = 256
    switch_s: tuple[float, float] = (0.0, 0.5)

    def at(self, mhz: float) -> Phases:
        """Return the phases at a clock, interpolated linearly between the measured ones."""
        right = min(max(1, bisect_right(self.measured_mhz, mhz)), len(self.measured_mhz) - 1)
        low, high = self.measured_mhz[right - 1], self.measured_mhz[right]
        share = min(1.0, max(0.0, (mhz - low) / (high - low)))
        a, b = self.phases[right - 1], self.phases[right]
        return Phases(
            _between(a.prefill, b.prefill, share),
            _between(a.decode, b.decode, share),
            a.prefill_w + (b.prefill_w - a.prefill_w) * share,
            (
                a.decode_w[0] + (b.decode_w[0] - a.decode_w[0]) * share,
                a.decode_w[1] + (b.decode_w[1] - a.decode_w[1]) * share,
            ),
            a.idle_w + (b.idle_w - a.idle_w) * share,
        )


def _between(a: Row, b: Row, share: float) -> Row:
    return tuple(x + (y - x) * share for x, y in zip(a, b, strict=True))


L20_MHZ = (900, 1200, 1500, 1800, 2100, 2520)
L20_PREFILL = (
    (0.01172, 3.2335e-4, 5.777e-9), (0.01056, 2.4414e-4, 4.393e-9), (0.00930, 1.9645e-4, 3.601e-9),
    (0.00937, 1.6451e-4, 3.087e-9), (0.01063, 1.4100e-4, 2.789e-9), (0.01299, 1.1870e-4, 2.649e-9),
)  # fmt: skip
L20_DECODE = (
    (0.023786, 1.2777e-4, 1.1132e-7, 8.3162e-7), (0.022814, 7.7907e-5, 9.2105e-8, 6.3715e-7),
    (0.022568, 4.8028e-5, 8.8735e-8, 5.1650e-7), (0.022515, 3.2945e-5, 8.7198e-8, 4.2677e-7),
    (0.021914, 5.2292e-5, 8.7419e-8, 2.5683e-7), (0.021505, 6.7768e-5, 8.6097e-8, 1.1576e-7),
)  # fmt: skip
L20_PREFILL_W = (160.7, 188.9, 219.7, 247.6, 267.9, 349.7)
L20_DECODE_W = (
    (184.56, 0.0344), (200.37, 0.0902), (212.36, 0.1429),
    (223.38, 0.1805), (233.33, 0.2240), (278.15, 0.2897),
)  # fmt: skip
L20_IDLE_W = (71.1, 67.5, 67.7, 68.2, 68.9, 77.2)
L20_PHASES = tuple(
    Phases(*row)
    for row in zip(L20_PREFILL, L20_DECODE, L20_PREFILL_W, L20_DECODE_W, L20_IDLE_W, strict=True)
)
"""prefill_time, decode_time, prefill_power (its two terms, saturated), decode_power, active_idle."""

L20 = LlmBoard(
    board="NVIDIA L20",
    model="qwen2.5-7b",
    clocks_mhz=tuple(range(900, 2521, 60)),
    measured_mhz=L20_MHZ,
    phases=L20_PHASES,
    limit_w=350.9,  # The table's prefill is constant from 4,096 tokens on.
    kv_tokens=411_824,  # kv_capacity_tokens
)
"""28 clocks: our choice of every fourth of the driver's steps of 15 MHz, within the measured range."""


def _sized(server: LlmBoard, model: str, *, size: float, kv: float, kv_tokens: int) -> LlmBoard:
    """Scale a server to another model: `size` × the parameters, `kv` × the bytes per token of context."""
    grown = tuple(
        replace(
            p,
            prefill=(p.prefill[0], p.prefill[1] * size, p.prefill[2] * kv),
            decode=(p.decode[0] * size, p.decode[1] * size, p.decode[2] * kv, p.decode[3] * size),
        )
        for p in server.phases
    )
    return replace(server, model=model, phases=grown, kv_tokens=kv_tokens)


def _like(shape: Sequence[Phases], top: Phases, watts_floor: float) -> tuple[Phases, ...]:
    """Scale phases to those at the highest clock, `top`, keeping the shape over the clocks of `shape`.

    `watts_floor` is the power that no clock changes: leakage, memory, fans of the module.
    """
    last = shape[-1]

    def row(own: Row, now: Row, then: Row) -> Row:
        return tuple(o * n / t for o, n, t in zip(own, now, then, strict=True))

    def watts(own: float, now: float, then: float) -> float:
        return watts_floor + (own - watts_floor) * now / then

    return tuple(
        Phases(
            row(top.prefill, now.prefill, last.prefill),
            row(top.decode, now.decode, last.decode),
            watts(top.prefill_w, now.prefill_w, last.prefill_w),
            (
                watts(top.decode_w[0], now.decode_w[0], last.decode_w[0]),
                top.decode_w[1] * now.decode_w[1] / last.decode_w[1],
            ),
            watts(top.idle_w, now.idle_w, last.idle_w),
        )
        for now in shape
    )


H100_MHZ = tuple(round(1980 * mhz / 2520) for mhz in L20_MHZ)
BOARDS_70B = 8
H100_70B = LlmBoard(
    board="8 × H100 SXM",
    model="llama2-70b",
    clocks_mhz=tuple(range(720, 1981, 60)),
    measured_mhz=H100_MHZ,
    phases=_like(
        L20_PHASES,
        Phases(
            # Splitwise, 8 boards, batch 1: 53.4 ms at 512 tokens, 136.7 at 2,048, 848 at 8,192.
            prefill=(0.0272, 5.1e-5, 6.0e-9),
            # 29.8–31.9 ms at batch 1; γ: 327,680 B of cache a token over 8 boards at 1.89 TB/s, which is
            # what two boards read their 70 GB each with in 37.1 ms; β: 5.2 ms from batch 1 to 64 on two.
            decode=(0.0304, 2.0e-5, 2.17e-8, 1.0e-8),
            # A prompt reaches or exceeds the limit ("Characterizing Power Management Opportunities for
            # LLMs in the Cloud", ASPLOS 2024); 1,830 MHz are not held at full load (TileOPs 1587).
            prefill_w=8 * 760.0,
            # 159 W a board at 27.3 % and 222 W at 72.2 % utilisation with 4 requests, 253 W at 80.7 %
            # with 8 (InferenceX issue 828, TP8): 121 W at 0 %, 261 and 283 W at 100 %.
            decode_w=(8 * 255.0, 8 * 0.9),
            idle_w=8 * 121.0,
        ),
        8 * 55.0,  # Ours: the part of an idle board's 121 W that no clock changes.
    ),
    limit_w=8 * 700.0,
    kv_tokens=1_330_000,  # 0.9 × 640 GB less 140 GB of weights, at 327,680 B a token.
    chunk_tokens=8192,
)
H100_8B = LlmBoard(
    board="H100 SXM",
    model="llama3.1-8b",
    clocks_mhz=H100_70B.clocks_mhz,
    measured_mhz=H100_MHZ,
    phases=_like(
        L20_PHASES,
        Phases(
            # Two boards with 70 B parameters (Splitwise): 84 ms at 512 tokens, 308 at 2,048, 1,339 at
            # 8,192, and 37.1 ms a step; × 8.03 / 69 × 2 for one board with 8 B.
            prefill=(0.0050, 3.4e-5, 4.7e-10),
            decode=(0.0086, 1.9e-5, 6.9e-8, 1.0e-8),  # γ: 131,072 B a token at 1.89 TB/s.
            prefill_w=760.0,
            decode_w=(255.0, 0.9),
            idle_w=121.0,
        ),
        55.0,
    ),
    limit_w=700.0,
    kv_tokens=427_000,  # 0.9 × 80 GB less 16 GB of weights.
    chunk_tokens=8192,
)
L20_14B = _sized(L20, "qwen2.5-14b", size=1.95, kv=3.43, kv_tokens=47_232)
"""14.8 of 7.6 B parameters; 196,608 of 57,344 B a token; kv_capacity_tokens of one L20, same authors."""

SERVERS = MappingProxyType(
    {
        "h100-llm": MappingProxyType({b.model: b for b in (H100_8B, H100_70B)}),
        "l20-llm": MappingProxyType({b.model: b for b in (L20, L20_14B)}),
    }
)
"""The simulated servers by name, and their models; the first is the default."""
