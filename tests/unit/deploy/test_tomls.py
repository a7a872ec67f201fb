"""The installed configuration files: valid keys, a description of every field, correct defaults."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any

import pytest

from agents.actuator.grants import ActuatorConfig, Granted, load_config
from agents.config import AgentConfig, Attachment, load_agent_config
from tuner.config import TunerConfig, load_tuner_config
from tuner.core import ConfigError

DEPLOY = Path(__file__).parents[3] / "deploy"
DEFAULT = re.compile(r"^#(?=[a-z\[\"])", re.MULTILINE)

FILES: dict[str, tuple[Callable[[Path], Any], type]] = {
    "tuner": (load_tuner_config, TunerConfig),
    "agent": (load_agent_config, AgentConfig),
    "actuator": (load_config, ActuatorConfig),
}


def text(name: str) -> str:
    return (DEPLOY / f"{name}.toml").read_text()


def uncommented(name: str, folder: Path) -> Path:
    path = folder / f"{name}.toml"
    path.write_text(DEFAULT.sub("", text(name)))
    return path


@pytest.mark.parametrize("name", FILES)
def test_every_key_is_known_also_those_in_comments(name: str, tmp_path: Path) -> None:
    load, _ = FILES[name]
    assert load(uncommented(name, tmp_path)) is not None


TABLES = {
    "jobs": "job",
    "devices": "device",
    "webhooks": "webhook",
    "email": "email",
    "series": "series",
}
"""Fields that are tables of the file; they have an example instead of a default."""


@pytest.mark.parametrize("name", FILES)
def test_every_field_is_documented_with_the_programs_default(name: str, tmp_path: Path) -> None:
    _, schema = FILES[name]
    told = tomllib.loads(uncommented(name, tmp_path).read_text())
    set_here = tomllib.loads(text(name))
    for field in fields(schema):
        if field.name in TABLES:
            assert told[TABLES[field.name]]
            continue
        assert field.name in told
        if field.name not in set_here and field.default not in (None, MISSING):
            kind = type(field.default)
            assert kind(told[field.name]) == field.default, field.name


def test_an_installed_wheel_runs_unchanged() -> None:
    tuner = load_tuner_config(DEPLOY / "tuner.toml")
    assert tuner.loopback
    assert tuner.db.startswith("sqlite:////var/lib/jouletune-tuner/")
    assert load_config(DEPLOY / "actuator.toml") == ActuatorConfig()


def test_an_agent_without_a_device_is_refused() -> None:
    with pytest.raises(ConfigError, match="no device"):
        load_agent_config(DEPLOY / "agent.toml")


def test_the_examples_of_tables_name_every_key_of_theirs(tmp_path: Path) -> None:
    (granted,) = tomllib.loads(uncommented("actuator", tmp_path).read_text())["device"]
    assert granted.keys() | granted["budget"].keys() == {f.name for f in fields(Granted)} | {
        "budget"
    }
    attached = tomllib.loads(uncommented("agent", tmp_path).read_text())["device"]
    assert {key for one in attached for key in one} == {f.name for f in fields(Attachment)}


def test_the_files_of_the_services_agree_on_their_paths() -> None:
    def paths(name: str, key: str) -> list[str]:
        return re.findall(rf"^{key}=(.*)$", (DEPLOY / name).read_text(), re.MULTILINE)

    (credential,) = paths("jouletune-agent.service", "LoadCredential")
    name, _, token = credential.partition(":")
    assert load_tuner_config(DEPLOY / "tuner.toml").token_file == Path(token)
    agent = tomllib.loads(text("agent"))
    assert agent["token_file"] == f"/run/credentials/jouletune-agent.service/{name}"
    assert agent["state_dir"] == f"/var/lib/{paths('jouletune-agent.service', 'StateDirectory')[0]}"
    (state,) = paths("jouletune-actuator.service", "StateDirectory")
    assert ActuatorConfig().state_dir == f"/var/lib/{state}"
    (writable,) = paths("jouletune-actuator.service", "ReadWritePaths")
    assert Path(ActuatorConfig().socket).parent == Path(writable)
    assert f"d {writable} 0750 root {ActuatorConfig().group} " in text_of("jouletune.tmpfiles")


def test_only_root_and_the_tuner_read_files_that_may_have_a_password() -> None:
    unit = text_of("jouletune-tuner.service")
    (config,) = re.findall(r"^ExecStart=.* --config (\S+)$", unit, re.MULTILINE)
    (group,) = re.findall(r"^Group=(.*)$", unit, re.MULTILINE)
    placed = text_of("jouletune.tmpfiles").splitlines()
    assert f"z {config} 0640 root {group} -" in placed


def text_of(file: str) -> str:
    return (DEPLOY / file).read_text()
