"""The rules of the kernel drivers amdgpu, xe and i915: what their files accept, show, lose and hide.

Sources: drivers/gpu/drm/amd/pm/amdgpu_pm.c (a cap is cut to whole watts; EPERM during a reset or a suspend;
reads wake a sleeping GPU; EINVAL on a virtual function) and Documentation/gpu/amdgpu/thermal.rst;
navi10_ppt.c, smu_v13_0_6_ppt.c and yellow_carp_ppt.c (pp_od_clk_voltage); radeon-profile 129 and LACT 41
(caps and clocks are lost by a resume or a reset); drivers/gpu/drm/xe/xe_hwmon.c and the ABI of xe's and
i915's hwmon (a register of 32 bits that is widened only when read; a clamped and rounded limit; 0 is off);
xe_gt_freq.c (50/3 MHz). Never compared with real hardware.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tests.boards.kernel import Node, Refused, whole

UW, REGISTER = 1_000_000, 1 << 32
LEVELS = ("auto", "low", "high", "manual", "profile_standard", "profile_peak", "perf_determinism")
FINE = (500, 2_500)
"""The ends of a clock without discrete levels."""


@dataclass
class Gpu:
    """A card's settings. `cap` is in µW, `mask` the allowed rows of `table`, `top` a ceiling in MHz and
    `boost` i915's second one, which a waiting program raises the clock to (intel-power-control 2).

    `loads` counts the loads of its driver, which move hwmon's number; `busy` is the error that all its
    files answer; `asleep` is ended by any read; `slept_ms` counts what it slept. `limits` is how
    pp_od_clk_voltage behaves: of a `card`, a `part` of a data centre or an `apu`; `staged` waits for its
    commit, `determined` is the clock that the level perf_determinism has fixed, `curve` a voltage offset.
    """

    kind: str
    default: int
    least: int
    most: int
    table: Sequence[int] = ()
    cap: int = 0
    level: str = "auto"
    mask: frozenset[int] = frozenset()
    top: int = 0
    boost: int = 0
    floor: int = 0
    loads: int = 1
    busy: int = 0
    slept_ms: int = 0
    asleep: bool = False
    guest: bool = False
    limits: str = ""
    staged: tuple[int, int] = (0, 0)
    determined: int = 0
    curve: int = 0

    def __post_init__(self) -> None:
        self.cap, self.top = self.cap or self.default, self.top or self.table[-1]
        self.boost = self.table[-1] if self.kind == "i915" else 0
        self.floor, self.mask = self.floor or self.table[0], frozenset(range(len(self.table)))

    def lose(self) -> None:
        """Silently return to the driver's defaults, as after a resume or a reset of the GPU."""
        self.cap, self.level, self.mask = self.default, "auto", frozenset(range(len(self.table)))
        self._free()
        self.staged, self.determined = (0, 0), 0

    def _free(self) -> None:
        self.top, self.floor = self.table[-1], self.table[0]
        self.boost = self.boost and self.top

    def load(self) -> None:
        """Reload its driver."""
        self.loads += 1
        self.lose()

    def sleep(self) -> None:
        """Sleep at run time, which loses caps and clocks; the next read wakes it."""
        self.asleep, self.slept_ms = True, self.slept_ms + 7_000
        self.lose()

    def refusal(self) -> int:
        self.asleep = False
        return self.busy

    @property
    def mhz(self) -> float:
        """The ceiling in force."""
        if self.kind != "amdgpu" or self.limits:
            return max(self.top, self.boost)
        rows = self.mask if self.level == "manual" else range(len(self.table))
        return self.table[max(rows)]

    def take_cap(self, text: str) -> None:
        """Set a limit: AMD cuts it to whole watts and has a range; Intel rounds it, 0 is off."""
        uw = whole(text)
        if self.guest or uw < 0:
            raise Refused
        if self.kind != "amdgpu":
            self.cap = uw // 125_000 * 125_000
            return
        if not self.least <= uw // UW * UW <= self.most:
            raise Refused
        if self.limits == "card" and uw > self.cap:  # amdgpu-clocks 63, of an RX 7700 XT
            self._free()
            self.staged = (0, 0)
        self.cap = uw // UW * UW

    def told_cap(self) -> int:
        """Return the shown limit: Intel clamps it to its range, unless it is off."""
        clamps = self.kind != "amdgpu" and self.cap
        return min(max(self.cap, self.least), self.most) if clamps else self.cap

    def take_level(self, text: str) -> None:
        """Set a level; `manual` starts with the previous mask, and other levels keep the mask."""
        if text not in LEVELS:
            raise Refused
        if self.limits not in ("", "card") and (text == "auto" or self.determined):
            self._free()
            self.staged = self.staged if self.limits == "part" else (0, 0)
            self.determined = 0
        self.level = text

    def take_limits(self, text: str) -> None:
        """Stage, commit or reset a limit of the clock, as navi10, smu_v13_0_6 and yellow_carp do."""
        levels = ("manual", "perf_determinism") if self.limits == "part" else ("manual",)
        if self.limits != "card" and self.level not in levels:
            raise Refused
        command, *numbers = text.split()
        if command == "s":
            row, mhz = numbers
            if row not in ("0", "1") or not self.table[0] <= whole(mhz) <= self.table[-1]:
                raise Refused
            low, high = self.staged
            self.staged = (whole(mhz), high) if row == "0" else (low, whole(mhz))
        elif command == "c":
            low, high = self.staged[0] or self.floor, self.staged[1] or self.top
            if low >= high:
                raise Refused
            self.floor, self.top = low, high
            self.determined = high if self.level == "perf_determinism" else 0
        else:
            self._free()
            self.curve, self.staged = 0, self.staged if self.limits == "part" else (0, 0)

    def shown_limits(self) -> str:
        """Return pp_od_clk_voltage: only a data centre's card hides staged values."""
        staged = (0, 0) if self.limits == "part" else self.staged
        low, high = staged[0] or self.floor, staged[1] or self.top
        most = FINE[1] + 250 * (self.limits == "card")
        ranges = "" if self.limits == "part" else f"\nOD_RANGE:\nSCLK: {FINE[0]:7}Mhz {most:10}Mhz"
        curve = f"\nOD_VDDGFX_OFFSET:\n{self.curve}mV" if self.limits == "card" else ""
        width = 10 if self.limits == "apu" else 0
        return f"OD_SCLK:\n0: {low:{width}}Mhz\n1: {high:{width}}Mhz{curve}{ranges}"

    def _told_limits(self) -> tuple[int, int]:
        return self.staged[0] or self.floor, self.staged[1] or self.top

    def kept_limits(self) -> str:
        low, high = self._told_limits()
        return f"{self.floor} {self.top} {low} {high} {self.determined} {self.curve}"

    def take_mask(self, text: str) -> None:
        rows = frozenset(map(whole, text.split()))
        if self.level != "manual" or not rows or not rows <= {*range(len(self.table))}:
            raise Refused
        self.mask = rows

    def take_top(self, which: str, text: str) -> None:
        mhz = whole(text)
        if not max(self.table[0], self.floor) <= mhz <= self.table[-1]:
            raise Refused
        setattr(self, which, round(round(mhz * 3 / 50) * 50 / 3))

    def rows(self, now_mhz: float, *, fine: bool) -> str:
        """Return the clock table. One without discrete levels has its two ends, and the present clock
        between them. Those of an APU are its limits.
        """
        ends = self._told_limits() if self.limits == "apu" else FINE
        table = [ends[0], round(now_mhz), ends[1]] if fine else [*self.table]
        now = 1 if fine else min(range(len(table)), key=lambda n: abs(table[n] - now_mhz))
        return "\n".join(f"{n}: {mhz}Mhz{' *' * (n == now)}" for n, mhz in enumerate(table))


@dataclass
class Veiled(Node):
    """A file that shows only a part of the board's state, which is `state`."""

    state: Callable[[], object] = str

    def read(self) -> bytes:
        self._answer()
        return f"{self.tell()}\n".encode()

    @property
    def kept(self) -> bytes:
        return f"{self.state()}\n".encode()


@dataclass
class Widened:
    """A register of 32 bits that its driver widens only when it is read: whole wraps are missed."""

    joules: Callable[[], float]
    unit_j: float = 2.0**-14
    last: int = 0
    total: int = 0

    def tell(self) -> int:
        now = int(self.joules() / self.unit_j) % REGISTER
        self.total += (now - self.last) % REGISTER
        self.last = now
        return int(self.total * self.unit_j * UW)
