from __future__ import annotations

from pathlib import Path

import pytest

from agents.config import AgentConfig, Attachment, MetricsAddress, load_agent_config
from tests.errors import raised
from tuner.core import ConfigError

WHOLE = """
tuner = "https://tuner.example:8790"
name = "board-7.lab"
token_file = "/etc/jouletune/token"
state_dir = "/var/lib/jouletune"
seed = 7

[[device]]
spec = "simulated:a100"

[[device]]
spec = "cpu"
workload = "reference"
"""


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "agent.toml"
    path.write_text(text)
    return path


def test_a_whole_file(tmp_path: Path) -> None:
    assert load_agent_config(write(tmp_path, WHOLE)) == AgentConfig(
        tuner="https://tuner.example:8790",
        name="board-7.lab",
        token_file=Path("/etc/jouletune/token"),
        state_dir=Path("/var/lib/jouletune"),
        devices=(Attachment("simulated:a100"), Attachment("cpu", "reference")),
        seed=7,
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('tunr = "http://x"', "unknown key 'tunr'; did you mean tuner?"),
        ("colour = 1", "known keys: tuner, name, token_file"),
        ("seed = true", "seed must be an integer, not True"),
        ('seed = "7"', "seed must be an integer"),
        ("token_file = 3", "token_file must be a string"),
        ("device = 3", "device must be a list"),
        ("device = [3]", "device 1 must be a table, not 3"),
        ("[[device]]\nworkload = 'reference'", "device 1 has no spec"),
        ("[[device]]\nspec = 'cpu'\nworklod = 'x'", "did you mean workload?"),
        ("tuner = ", "is not valid TOML"),
        ("seed = 1", "no device"),
        ("tuner = 'ftp://u:secret@h'\n[[device]]\nspec = 'cpu'", "tuner cannot be 'ftp://…@h'"),
        ("name = 'rack 3'\n[[device]]\nspec = 'cpu'", "name cannot be 'rack 3'"),
        ("name = 'a/b'\n[[device]]\nspec = 'cpu'", "name cannot be 'a/b'"),
        ("name = 3", "name must be a string"),
    ],
)
def test_faults_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_agent_config(write(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with raised(ConfigError, "nowhere.toml"):
        load_agent_config(tmp_path / "nowhere.toml")


@pytest.mark.parametrize(
    ("text", "workload", "expected"),
    [
        ("cpu", "", Attachment("cpu")),
        ("cpu=reference", "", Attachment("cpu", "reference")),
        ("cpu", "reference", Attachment("cpu", "reference")),
        ("cpu=http://127.0.0.1:80", "reference", Attachment("cpu", "http://127.0.0.1:80")),
        ("replay:a=b.csv#x=reference", "", Attachment("replay:a=b.csv#x", "reference")),
    ],
)
def test_devices_on_the_command_line_are_parsed(
    text: str, workload: str, expected: Attachment
) -> None:
    assert Attachment.parse(text, workload) == expected


@pytest.mark.parametrize("text", ["", "=reference", "cpu="])
def test_an_incomplete_device_is_refused(text: str) -> None:
    with raised(ConfigError, "device"):
        Attachment.parse(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9464", MetricsAddress(host="127.0.0.1", port=9464)),
        ("localhost:9464", MetricsAddress(host="127.0.0.1", port=9464)),
        ("[::1]:9464", MetricsAddress(host="::1", port=9464)),
        ("unix:/run/x/metrics.sock", MetricsAddress(path=Path("/run/x/metrics.sock"))),
    ],
)
def test_metrics_are_served_on_this_host(text: str, address: MetricsAddress) -> None:
    assert MetricsAddress.parse(text) == address
    assert AgentConfig(devices=(Attachment("cpu"),), metrics=text).metrics == text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("0.0.0.0:9464", "beyond its host"),
        ("[::]:9464", "beyond its host"),
        ("192.168.1.5:9464", "beyond its host"),
        ("example.org:9464", "cannot be"),
        ("127.0.0.1", "cannot be"),
        ("127.0.0.1:http", "cannot be"),
        ("127.0.0.1:99999", "no such port"),
        ("unix:metrics.sock", "not absolute"),
    ],
)
def test_metrics_are_served_to_no_other_host(text: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        AgentConfig(devices=(Attachment("cpu"),), metrics=text)
