"""Properties of the root process across restarts: missing devices, late writes, the emergency stop."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import nullcontext

import pytest

from agents.actuator_client.client import DETACHED
from tests.processes import children, gone, until
from tests.unit.agents.actuator.site import FACTORY, GPU, HERE, LIMIT, TRIED, Site
from tuner.core import Conflict, DeviceLost


@pytest.mark.promise(
    "a GPU or its driver is missing when the actuator starts",
    "it is shown as missing until it answers, then restored",
)
def test_a_device_that_answers_later_is_put_back_then(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.killed_in_a_trial()
    away = site.hardware.rename(site.folder / "away")
    site.serve()
    assert site.console("status") == 0
    assert f"{GPU}: the device is missing" in capsys.readouterr().out
    file = site.folder / "jouletune.prom"
    assert site.console("metrics", str(file)) == 0
    assert f'jouletune_device_wrong{{device="{GPU}"}} 1.0' in file.read_text()
    away.rename(site.hardware)
    site.until(lambda: site.shows(GPU))
    assert site.values == FACTORY
    late = site.remote()
    late.apply(TRIED)


@pytest.mark.promise(
    "a write hangs in the driver and takes effect after the restore",
    "it is restored again; the device is unavailable meanwhile",
)
def test_a_write_that_lands_after_the_restore_is_undone(site: Site) -> None:
    """The driver's process is killed; the kernel completes its write later."""
    site.configure('"gpu.clock_mhz" = { min = 600, max = 1410 }', "deadline_s = 2.0")
    site.serve()
    remote = site.remote()
    site.fault({LIMIT: "late"})
    with pytest.raises(DeviceLost, match="did not answer"):
        remote.apply(TRIED)
    site.fault({})
    site.until(lambda: "may still take effect" in site.log)
    assert site.values == FACTORY
    assert list((site.folder / "state").glob("GPU-*"))
    (site.folder / "hardware.let_go").touch()
    site.until(lambda: not list((site.folder / "state").glob("GPU-*")))
    assert site.values == FACTORY
    assert (site.folder / "hardware.landed").exists()


@pytest.mark.promise("an operator stops everything")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root restores")
def test_detached_devices_are_restored_and_no_process_has_their_driver_open(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    """A GPU reset, a change of MIG mode and a driver upgrade are refused while any process has a handle."""

    process = site.serve()
    remote = site.remote()
    remote.hold(TRIED, "s1", 1, 1000.0)
    drivers = children(process.pid)
    assert drivers
    assert site.console("detach") == 0
    assert "drivers are released" in capsys.readouterr().out
    assert site.values == FACTORY
    assert site.socket.with_name(DETACHED).exists()
    until(lambda: gone(*drivers), "a driver's process still has its files")
    assert not children(process.pid)
    assert site.console("status") == 0
    until(lambda: not children(process.pid), "a driver's process still has its files")
    with pytest.raises(Conflict, match="restore --all --lift"):
        remote.apply(TRIED)
    assert site.console("restore", "--all", "--lift") == 0
    assert not site.socket.with_name(DETACHED).exists()
    remote.apply(TRIED)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root restores")
def test_an_emergency_stop_holds_until_it_is_lifted(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    process = site.serve()
    remote = site.remote()
    remote.hold(TRIED, "s1", 1, 1000.0)
    assert site.console("restore", "--all", "--stay") == 0
    assert site.values == FACTORY
    assert "until `jouletune actuator restore --all --lift`" in capsys.readouterr().out
    process.kill()
    process.wait()
    process = site.serve()
    with pytest.raises(Conflict, match="restore --all --lift"):
        remote.apply(TRIED)
    with pytest.raises(Conflict, match="restore --all --lift"):
        remote.hold(TRIED, "s1", 1, 1000.0)
    assert site.console("status") == 0
    assert "all devices stay at their original settings" in capsys.readouterr().out
    assert site.values == FACTORY
    assert site.console("restore", "--all", "--lift") == 0
    remote.apply(TRIED)
    assert site.console("restore", "--all") == 0
    assert site.values == FACTORY
    remote.apply(TRIED)


def test_an_emergency_stop_needs_no_actuator_that_runs(site: Site) -> None:
    process = site.serve()
    remote = site.remote()
    remote.apply(TRIED)
    process.kill()
    process.wait()
    command = "import sys; from tuner.cli.app import main; sys.exit(main())"
    command_words = ("actuator", "restore", "--all")
    for words in (["--stay"], ["--lift"]):
        done = subprocess.run(
            [sys.executable, "-c", command, *command_words, *words, "--config", str(site.config)],
            env={**os.environ, "PYTHONPATH": str(HERE)},
            check=False,
        )
        assert done.returncode == 0
        assert site.values == FACTORY
        process = site.serve()
        with nullcontext() if words == ["--lift"] else pytest.raises(Conflict, match="--lift"):
            remote.apply(TRIED)
        process.kill()
        process.wait()


@pytest.mark.parametrize(
    "words",
    [["--stay"], ["--lift"], ["--all", "--stay", "--lift"], [GPU, "--all"], [GPU, "--stay"]],
)
def test_only_a_stop_of_all_devices_blocks_changes(site: Site, words: list[str]) -> None:
    assert site.console("restore", *words) == 2
