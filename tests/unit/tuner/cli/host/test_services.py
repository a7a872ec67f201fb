"""`tuner serve`, `agent serve` and `agent revert`: options override the file."""

from __future__ import annotations

from pathlib import Path

import pytest

import agents.main
import tuner.main
from agents.config import AgentConfig, Attachment
from agents.workloads.command.config import load_command_config
from tests.errors import raised
from tuner.cli.app import main
from tuner.cli.run.programs import Program, write_program
from tuner.config import TunerConfig
from tuner.core import InvalidInput, Space

SECRET = "postgresql://u:secret@h/d"


@pytest.fixture
def served(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return the configurations of the started services; nothing is served."""
    configs: list[object] = []
    monkeypatch.setattr(tuner.main, "serve", configs.append)
    monkeypatch.setattr(agents.main, "serve", configs.append)
    for name in ("JOULETUNE_DB", "JOULETUNE_TUNER", "JOULETUNE_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    return configs


def test_a_tuner_is_served_by_its_defaults_file_and_options(
    served: list[object], tmp_path: Path
) -> None:
    file = tmp_path / "tuner.toml"
    file.write_text('port = 9000\nhost = "::1"\nkeep_days = 5\n')
    assert main(["tuner", "serve"]) == 0
    assert main(["tuner", "serve", "--config", str(file), "--port", "0", "--db", "memory://"]) == 0
    assert served[0] == TunerConfig()
    assert served[1] == TunerConfig(port=0, host="::1", keep_days=5, db="memory://")


def test_a_database_url_may_come_by_the_environment(
    served: list[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOULETUNE_DB", SECRET)
    assert main(["tuner", "serve"]) == 0
    assert served == [TunerConfig(db=SECRET)]


@pytest.mark.parametrize(
    "command",
    [
        ["tuner", "serve"],
        ["doctor"],
        ["study", "list"],
        ["run", "--device", "simulated:orin"],
    ],
    ids=" ".join,
)
@pytest.mark.parametrize("url", [SECRET, "postgresql://h/d?password=secret"])
def test_a_password_on_the_command_line_is_refused(
    served: list[object], command: list[str], url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command, "--db", url]) == 2
    out, err = capsys.readouterr()
    assert ".pgpass" in err
    assert "passfile=" in err
    assert "secret" not in out + err
    assert served == []


def test_an_agent_is_served_by_options_and_file(served: list[object], tmp_path: Path) -> None:
    arguments = ["agent", "serve", "--device", "cpu=reference", "--device", "simulated:orin"]
    assert main([*arguments, "--workload", "w", "--seed", "3", "--tuner", "http://h:1"]) == 0
    both = (Attachment("cpu", "reference"), Attachment("simulated:orin", "w"))
    assert served[0] == AgentConfig(devices=both, seed=3, tuner="http://h:1")
    file = tmp_path / "agent.toml"
    file.write_text('seed = 4\ntuner = "http://t"\n[[device]]\nspec = "cpu"\n')
    assert main(["agent", "serve", "--config", str(file), "--state-dir", "x"]) == 0
    assert served[1] == AgentConfig(
        devices=(Attachment("cpu"),), seed=4, tuner="http://t", state_dir=Path("x")
    )


def test_an_agent_gets_its_name_and_labels_by_options(served: list[object], tmp_path: Path) -> None:
    file = tmp_path / "agent.toml"
    file.write_text('name = "n"\nlabels = { rack = "a", row = "2" }\n[[device]]\nspec = "cpu"\n')
    given = ["--name", "node-1", "--label", "rack=b", "--label", "pool=h100"]
    assert main(["agent", "serve", "--config", str(file), *given]) == 0
    assert served == [
        AgentConfig(
            devices=(Attachment("cpu"),),
            name="node-1",
            labels={"rack": "b", "row": "2", "pool": "h100"},
        )
    ]


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["tuner", "serve", "--port", "99999"], "99999"),
        (["agent", "serve", "--device", "cpu", "--label", "rack"], "rack"),
        (["agent", "serve", "--device", "cpu", "--label", "rack="], "rack="),
        (["agent", "serve", "--device", "cpu", "--label", "x=1", "--label", "x=2"], "x=2"),
        (["tuner", "serve", "--config", "none.toml"], "none.toml"),
        (["agent", "serve"], "--device"),
        (["agent", "serve", "--device", "cpu="], "cpu="),
        (["agent", "serve", "--device", "cpu", "--tuner", "h:1"], "h:1"),
        (["agent", "serve", "--config", "none.toml"], "none.toml"),
    ],
)
def test_a_wrong_configuration_is_refused(
    served: list[object], arguments: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert (named in err, err.count("\n")) == (True, 1)
    assert served == []


def test_reverting_without_a_journal_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["agent", "revert", "--state-dir", str(tmp_path)]
    assert main(arguments) == 0
    assert "nothing to restore" in capsys.readouterr().out
    assert main([*arguments, "--json"]) == 0
    assert capsys.readouterr().out.split() == ["{", '"reverted":', "[]", "}"]


def test_reverting_finds_the_agents_configured_state_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    state, config = tmp_path / "kept", tmp_path / "agent.toml"
    config.write_text(f'state_dir = "{state}"\n[[device]]\nspec = "cpu"\n')
    state.mkdir()
    for option, message in (
        ("--stay", "lift it with `jouletune agent revert --lift`"),
        ("--lift", "stop lifted"),
        ("--lift", "no emergency stop was active"),
    ):
        assert main(["agent", "revert", "--config", str(config), option]) == 0
        assert message in capsys.readouterr().out


def test_reverting_in_the_wrong_folder_is_an_error_and_creates_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for option in ([], ["--stay"], ["--lift"]):
        assert main(["agent", "revert", *option]) != 0
        err = capsys.readouterr().err
        assert "no state folder agent-state" in err and "--config" in err
    assert list(tmp_path.iterdir()) == []


def test_to_stay_and_to_be_lifted_is_refused(tmp_path: Path) -> None:
    assert main(["agent", "revert", "--state-dir", str(tmp_path), "--stay", "--lift"]) == 2
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("service", ["agent", "tuner"])
def test_a_service_whose_file_is_wrong_ends_with_78_for_systemd(
    served: list[object], tmp_path: Path, service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """EX_CONFIG of sysexits.h: the units have RestartPreventExitStatus=78."""
    file = tmp_path / "wrong.toml"
    file.write_text("no_such_key = 1\n")
    assert main([service, "serve", "--config", str(file)]) == 78
    assert "no_such_key" in capsys.readouterr().err
    assert served == []
    unit = Path(__file__).parents[5] / f"deploy/jouletune-{service}.service"
    assert "RestartPreventExitStatus=78\n" in unit.read_text()


def test_a_command_with_an_undeclared_knob_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"names \{batch\}, but no --knob") as refused:
        write_program(Program("python train.py {batch}"), tmp_path)
    assert "--knob batch=" in (refused.value.hint or "")
    assert write_program(Program("python train.py"), tmp_path).startswith("command:")


LOADER = "python train.py {workers} {prefetch}"


@pytest.mark.parametrize("condition", ["workers > 0", "workers>0", " workers  >  0 "])
def test_a_knob_without_effect_in_some_settings_is_written_with_its_condition(
    tmp_path: Path, condition: str
) -> None:
    knobs = ("workers=0,2,4", f"prefetch=2,4,8@4 if {condition}")
    spec = write_program(Program(LOADER, knobs), tmp_path)
    config = load_command_config(Path(spec.removeprefix("command:")))
    assert str(config.knobs[1]) == "prefetch if workers > 0"
    assert config.knobs[1].default == 4
    assert Space(config.knobs).size == 7


@pytest.mark.parametrize(
    ("knob", "named"),
    [
        ("prefetch=2,4 if fans > 0", "fans"),
        ("prefetch=2,4 if prefetch > 2", "itself"),
        ("prefetch=2,4 if workers > 9", "workers > 9"),
        ("prefetch=2,4 if workers > many", "many"),
        ("prefetch=2,4 if", "condition"),
        ("prefetch=2,4@3 if workers > 0", "3"),
    ],
)
def test_a_condition_that_cannot_be_is_refused_by_name(
    tmp_path: Path, knob: str, named: str
) -> None:
    with raised(InvalidInput, named):
        write_program(Program(LOADER, ("workers=0,2,4", knob)), tmp_path)
    assert not list(tmp_path.glob("program*"))
