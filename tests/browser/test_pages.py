"""Every page in a real browser at two widths: 13 devices in 9 states, studies of 10 to 300 trials."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from tests.browser.conftest import enter
from tests.browser.fleet import FLEET, TOML, fill, study_of
from tests.browser.tasks import MOST_STEPS, TASKS, Operator, Task, in_commands
from tests.browser.test_accessibility import axe, faults
from tests.integration.stage import Stage, stage

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

__all__ = ["axe"]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
WIDE, NARROW = (1280, 900), (390, 844)
SIZES = pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
LARGEST = study_of("gpu1@rack1")


@dataclass(frozen=True)
class Shown:
    """A page at a width, signed in, and where the tuner is."""

    page: Page
    base: str
    played: Stage

    def open(self, path: str) -> None:
        self.page.goto(f"{self.base}{path}")

    @property
    def fits(self) -> bool:
        """Whether nothing has to be scrolled sideways but a table in its own frame."""
        script = "document.documentElement.scrollWidth <= document.documentElement.clientWidth"
        return bool(self.page.evaluate(script))


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stage]:
    with stage(tmp_path_factory.mktemp("fleet"), TOML) as played:
        fill(played.db)
        played.start_tuner()
        yield played


@pytest.fixture
def shown(filled: Stage, chromium: Browser, size: tuple[int, int]) -> Iterator[Shown]:
    width, height = size
    context = chromium.new_context(viewport={"width": width, "height": height})
    page = context.new_page()
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    base = enter(page, filled)
    page.locator("#numbers [data-soon]").wait_for(state="detached", timeout=120_000)
    yield Shown(page, base, filled)
    context.close()
    assert errors == []


@SIZES
def test_each_device_is_a_row_with_problems_first(shown: Shown) -> None:
    rows = shown.page.locator("#devices tbody tr")
    assert rows.count() == len(FLEET) == 13
    texts = [rows.nth(n).inner_text() for n in range(13)]
    wanted = ["limit not met", "offline", "paused", "proposed", "trying", "trying"]
    assert [word for text, word in zip(texts, wanted, strict=False) if word not in text] == []
    assert sum("safe" in text for text in texts[-3:-1]) == 2
    assert "observed" in texts[-1]
    held = next(text for text in texts if "gpu0@rack1" in text)
    for fact in (
        "holding",
        "gpu.clock_mhz=1050",
        "batch_size=8",
        "resnet50",
        " W",
        " ms",
        " %",
        "kJ",
    ):
        assert fact in held, fact
    assert "gpu.memory_clock_mhz" not in held, "the default is not shown"
    assert "%" not in next(text for text in texts if "offline" in text), "nothing is saved now"
    assert shown.page.locator("#devices .spark").count() >= 18
    assert shown.fits


@SIZES
def test_the_pages_filter_and_group_devices(shown: Shown) -> None:
    shown.page.locator("#chips").get_by_text("holding").click()
    shown.page.wait_for_url("**/?health=holding**")  # until it is loaded
    assert shown.page.locator("#devices tbody tr").count() == 4
    shown.open("/?group=host")
    groups = shown.page.locator("#devices tr.group").all_inner_texts()
    assert [text.strip() for text in groups] == ["edge", "lab", "rack1", "rack2"]
    shown.open("/?find=orin+lab")
    assert shown.page.locator("#devices tbody tr").count() == 3
    shown.open("/?find=gpu")
    shown.page.locator("#devices").get_by_role("link", name="room=rack1").first.click()
    shown.page.wait_for_url("**/?label=room%3Drack1")
    every = shown.page.locator("#devices tbody tr")
    assert {"@rack1" in text for text in every.all_inner_texts()} == {True}
    shown.page.locator("#chips").get_by_role("link", name="room=rack1").click()
    shown.page.wait_for_url("**/?health=&group=&find=")
    assert shown.page.locator("#devices tbody tr").count() > 3
    assert shown.fits


@SIZES
def test_a_device_that_is_only_observed_has_figures_and_no_button(shown: Shown) -> None:
    shown.open("/devices/xavier0@edge")
    shown.page.locator("#timeline .plot svg").first.wait_for()
    status = shown.page.locator("#status").inner_text()
    for fact in ("observed", "599 windows", "power_w", "latency_p99_ms", "nothing sets it"):
        assert fact in status, fact
    assert shown.page.get_by_text("Release this device").count() == 0
    assert shown.page.get_by_text("Tune this device").count() == 0
    assert shown.fits


@SIZES
@pytest.mark.parametrize("name", ["gpu3@rack1", "gpu2@rack1", "gpu0@rack1", "gpu1@rack1"])
def test_a_study_page_shows_status_next_step_and_charts(shown: Shown, name: str) -> None:
    placed = next(one for one in FLEET if one.name == name)
    shown.open(f"/studies/{study_of(name)}")
    page = shown.page
    status = page.locator("#standing").inner_text()
    assert str(placed.phase) in status and "Next:" in status and "Last changed by ann" in status
    assert page.locator("#limits .gauge").count() == 1
    for chart in ("#cloud", "#course", "#parallel", "#effect1"):
        page.locator(f"{chart} .plot svg").first.wait_for()
    assert f"all {placed.trials}" in page.locator("#trial-list").inner_text()
    page.get_by_role("link", name="energy_j").first.click()
    page.wait_for_url("**sort=energy_j**")
    column = page.locator("#trial-list tbody td:nth-child(6)").all_inner_texts()
    energies = [float(text.split()[0]) for text in column]
    assert energies == sorted(energies)
    assert shown.fits


@SIZES
def test_the_models_importance_of_knobs_comes_by_itself(shown: Shown) -> None:
    shown.open(f"/studies/{study_of('gpu2@rack1')}")
    shown.page.locator("#importance .plot svg").first.wait_for(timeout=120_000)
    assert "Knob importance" in shown.page.locator("#importance").inner_text()


@pytest.mark.parametrize("size", [WIDE])
def test_a_hidden_page_is_not_renewed_until_it_is_seen(shown: Shown) -> None:
    script = """() => {
        clearTimeout(waiting);
        waiting = null;
        Object.defineProperty(document, "hidden", { value: true, configurable: true });
        soon();
        const asleep = waiting === null;
        delete document.hidden;
        document.dispatchEvent(new Event("visibilitychange"));
        return [asleep, waiting !== null];
    }"""
    assert shown.page.evaluate(script) == [True, True]


@SIZES
@pytest.mark.parametrize("within", ["24h", "7d", "30d"])
def test_a_device_over_time(shown: Shown, within: str) -> None:
    shown.open(f"/devices/gpu0@rack1?range={within}")
    page = shown.page
    assert "Applied: gpu.clock_mhz=1050 batch_size=8 (hold)" in page.locator("#status").inner_text()
    page.locator("#timeline .plot svg").first.wait_for()
    drawn = page.locator("#timeline .plot").evaluate("plot => plot.data.map(trace => trace.name)")
    assert {"latency_p99_ms", "power_w", "hold", "events"} <= set(drawn)
    assert "tuner, study" in page.locator("#applied").inner_text()
    assert shown.fits


@SIZES
def test_the_history_shows_the_setting_first_and_times_in_both_forms(shown: Shown) -> None:
    shown.open("/history")
    page = shown.page
    time = page.locator("tbody time").first
    assert time.inner_text().endswith("ago")
    assert (time.get_attribute("title") or "").endswith("Z")
    page.locator("#zone").click()
    assert page.locator("#zone").inner_text() == "Local time"
    page.locator("#zone").click()
    if page.viewport_size == {"width": 1280, "height": 900}:
        bottom = page.locator("tbody tr").nth(24).bounding_box()
        assert bottom is not None and bottom["y"] + bottom["height"] <= 900, "25 rows on a screen"
    page.get_by_text("Columns", exact=True).first.click()
    page.get_by_label("power_w").check()
    page.get_by_role("button", name="Show").click()
    page.wait_for_url("**columns=power_w**")
    assert "power_w" in page.locator("thead").inner_text()
    assert shown.fits


@SIZES
def test_constraints_list_only_real_changes_and_preview_one(shown: Shown) -> None:
    shown.open(f"/studies/{LARGEST}/constraints")
    page = shown.page
    assert page.locator("tbody tr").count() == 1
    page.get_by_label("Constraints").fill("latency_p99_ms <= 1.05x baseline")
    page.get_by_role("button", name="Preview the change").click()
    assert "infeasible" in page.get_by_label("Preview").inner_text()
    assert shown.fits


@pytest.mark.parametrize("scheme", ["light", "dark"])
@SIZES
def test_axe_finds_nothing(
    filled: Stage, chromium: Browser, axe: str, size: tuple[int, int], scheme: str
) -> None:
    width, height = size
    context = chromium.new_context(
        color_scheme=scheme,  # type: ignore[arg-type]
        viewport={"width": width, "height": height},
        bypass_csp=True,  # axe is put into the page, which the pages' policy forbids
    )
    page = context.new_page()
    base = enter(page, filled)
    wrong = {}
    for path in ("/", "/devices/gpu0@rack1", f"/studies/{study_of('gpu4@rack1')}", "/history"):
        page.goto(f"{base}{path}")
        page.wait_for_timeout(500)  # the charts
        wrong[path] = faults(page, axe)
    context.close()
    assert {where: what for where, what in wrong.items() if what} == {}


@pytest.mark.parametrize("size", [WIDE])
def test_everything_is_reached_by_the_keyboard(shown: Shown) -> None:
    page = shown.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the content"
    names = set()
    for _ in range(60):
        page.keyboard.press("Tab")
        names.add(page.evaluate("(document.activeElement.textContent || '').trim().slice(0, 40)"))
    assert {"Stop all devices", "gpu2@rack2", "Fleet"} <= names


@pytest.mark.parametrize("size", [WIDE, NARROW], ids=["1280", "390"])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_a_task_takes_three_steps_at_most(shown: Shown, task: Task) -> None:
    operator = Operator(shown.page, shown.base)
    shown.open("/")
    task.on_pages(operator)
    assert operator.steps <= MOST_STEPS
    if shown.page.locator("#stopped").is_visible():
        shown.page.get_by_text("Resume all studies").click()
        shown.page.get_by_label("Reason").fill("aired")
        shown.page.get_by_role("button", name="Lift the stop").click()
        shown.page.locator("#stopped").wait_for(state="detached")


def test_a_task_takes_one_command() -> None:
    assert len(in_commands()) == len(TASKS)
