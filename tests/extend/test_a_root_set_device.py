"""A device that root sets: a driver in a separate package, and its name among the drivers."""

from __future__ import annotations

from pathlib import Path

from tests.extend.checkout import Checkout

DRIVER = '''"""What root sets of a board with one fan: a file of the kernel."""

from pathlib import Path

from agents.actuator import sysfs
from agents.actuator.sysfs import FileKnob

SPEED = "fan.speed"


def discover(path: str = "/") -> list[sysfs.FileKnobs]:
    """Return the fan of the host at `path`. Raises ActuationError."""
    knob = FileKnob([Path(path) / "sys/class/hwmon/hwmon0/pwm1"], (64, 128, 255), 1)
    return sysfs.devices("fan", "fan", (SPEED,), Path(path), lambda: {SPEED: knob})
'''
CONFIG = """
socket = "{folder}/socket"
state_dir = "{folder}/state"
drivers = ["fan:{folder}/root"]
[[device]]
match = "fan"
[device.grant]
"fan.speed" = {{ min = 64, max = 255 }}
"""
SET = """
import signal, subprocess, sys, time
from pathlib import Path

from agents.actuator_client.client import open_remote
from tests.actuation import answers
from tests.builders import Time

folder = Path(sys.argv[1])
actuator = [sys.executable, "-m", "agents.actuator.main", "serve", str(folder / "actuator.toml")]
process = subprocess.Popen(actuator)
try:
    while not answers(folder / "socket"):
        assert process.poll() is None
        time.sleep(0.01)
    fan = open_remote(folder / "socket", "fan", Time())
    fan.apply({"fan.speed": 128})
    print((folder / "root/sys/class/hwmon/hwmon0/pwm1").read_text())
    fan.close()
finally:
    process.send_signal(signal.SIGTERM)
    process.wait(20.0)
"""


def test_a_root_set_device_changes_one_file(tmp_path: Path) -> None:
    copy = Checkout(tmp_path / "copy", "agents", "tuner")
    copy.add("agents/devices/fan/__init__.py", '"""A fan."""\n')
    copy.add("agents/devices/fan/knobs.py", DRIVER)
    copy.insert("agents/actuator/grants.py", '"jetson", "nvidia", "nvpmodel", "unit")', '"fan", ')
    assert copy.changed == ["agents/actuator/grants.py"]
    speed = tmp_path / "root/sys/class/hwmon/hwmon0/pwm1"
    speed.parent.mkdir(parents=True)
    speed.write_text("255")
    (tmp_path / "actuator.toml").write_text(CONFIG.format(folder=tmp_path))
    assert copy.python(SET, str(tmp_path)).strip() == "128"
    assert speed.read_text() == "255", "at its end the actuator puts it back"
