"""tuner.toml, the token file and the port."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path

import pytest

from tests.errors import raised
from tuner.config import (
    TunerConfig,
    holds_password,
    load_tuner_config,
)
from tuner.core import ConfigError
from tuner.main import bind, ensure_token, names


def written(folder: Path, text: str) -> Path:
    path = folder / "tuner.toml"
    path.write_text(text)
    return path


def test_a_whole_file_is_read(tmp_path: Path) -> None:
    text = 'db = "memory://"\nport = 0\nlease_s = 5\ntoken_file = "t"\ntuning_hours = "22-6"\n'
    config = load_tuner_config(written(tmp_path, text))
    assert config == TunerConfig(
        db="memory://", port=0, lease_s=5.0, token_file=Path("t"), tuning_hours="22-6"
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("prot = 1", "unknown key 'prot'.*did you mean port"),
        ("colour = 1", "unknown key 'colour'.*known keys"),
        ('port = "x"', "port must be an integer"),
        ("port = true", "port must be an integer"),
        ("port = 99999", "port cannot be 99999"),
        ("lease_s = 0", "must be positive"),
        ('tuning_hours = "late"', "tuning_hours cannot be 'late'"),
        ("port = ", "not valid TOML"),
        ('names = "tuner"', "names must be a list, not 'tuner'"),
        ("names = [1]", "line 1: names 1 must be a string, not 1"),
        ('metric_labels = ["Rack 1"]', "metric_labels cannot hold 'Rack 1'"),
        ('metric_labels = ["workload"]', "metric_labels cannot hold 'workload'"),
        ('metric_labels = ["a", "b", "c", "d", "e", "f"]', "metric_labels has 6 labels"),
        ('names = ["https://tuner:443"]', "names cannot hold 'https://tuner:443'"),
    ],
)
def test_a_wrong_file_names_the_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_tuner_config(written(tmp_path, text))


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with raised(ConfigError, "nowhere.toml"):
        load_tuner_config(tmp_path / "nowhere.toml")


@pytest.mark.parametrize("hours", ["", "8-8"])
def test_tuning_hours_that_make_no_sense_are_refused(hours: str) -> None:
    with raised(ConfigError, "tuning_hours", hours):
        TunerConfig(tuning_hours=hours)


def test_a_token_is_made_once_for_its_owner_alone(tmp_path: Path) -> None:
    path = tmp_path / "sub" / "token"
    token = ensure_token(path)
    assert len(token) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert ensure_token(path) == token


def test_a_token_others_can_read_or_that_is_empty_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("secret")
    path.chmod(0o644)
    with raised(ConfigError, "chmod 600"):
        ensure_token(path)
    path.chmod(0o600)
    for short in ("", "secret", "x" * 21):
        path.write_text(short)
        with raised(ConfigError, "22") as refused:
            ensure_token(path)
        assert f"openssl rand -hex 32 >{path}" in refused.value.hint
    path.write_text("x" * 22 + "\n")
    assert ensure_token(path) == "x" * 22


def test_a_token_that_cannot_be_kept_is_an_error_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "sub").write_text("")
    with raised(ConfigError, "token"):
        ensure_token(tmp_path / "sub" / "token")


def test_a_taken_port_is_named() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with raised(ConfigError, "127.0.0.1", port):
            bind(TunerConfig(port=port))


def test_sent_data_does_not_wait_for_an_acknowledgement() -> None:
    async def at_once() -> int:
        option: asyncio.Future[int] = asyncio.get_running_loop().create_future()

        def met(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            line = writer.get_extra_info("socket")
            option.set_result(line.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
            writer.close()

        listener = bind(TunerConfig(port=0))
        async with await asyncio.start_server(met, sock=listener):
            _, writer = await asyncio.open_connection(*listener.getsockname())
            no_delay = await option
            writer.close()
            await writer.wait_closed()
        return no_delay

    assert asyncio.run(at_once())


def test_only_loopback_names_are_answered_on_loopback() -> None:
    assert names(TunerConfig()) == {"localhost", "127.0.0.1", "::1"}


def test_the_names_given_are_answered_and_no_guessed_ones(tmp_path: Path) -> None:
    assert socket.gethostname().lower() in names(TunerConfig(host="0.0.0.0"))
    config = load_tuner_config(
        written(tmp_path, 'host = "0.0.0.0"\nnames = ["Tuner.example.org", "10.0.0.7"]\n')
    )
    local = {"localhost", "127.0.0.1", "::1", "0.0.0.0"}
    assert names(config) == local | {"tuner.example.org", "10.0.0.7"}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ann:secret@host/db",
        "postgresql+psycopg://ann:sec/ret?@host/db",
        "postgres://:secret@host/db",
        "postgresql://ann@host/db?sslmode=require&password=secret",
        "postgresql://host/db?sslpassword=secret",
    ],
)
def test_a_file_with_a_password_is_refused_where_others_can_read_it(
    tmp_path: Path, url: str
) -> None:
    path = written(tmp_path, f'db = "{url}"\n')
    path.chmod(0o644)
    with raised(ConfigError, "chmod 640", path) as caught:
        load_tuner_config(path)
    assert "sec" not in str(caught.value)
    path.chmod(0o640)
    config = load_tuner_config(path)
    assert config.db == url
    assert "sec" not in repr(config)


@pytest.mark.parametrize(
    "url",
    [
        "sqlite:////var/lib/jouletune-tuner/jouletune.sqlite",
        "postgresql://ann@host:5432/db?passfile=/var/lib/jouletune-tuner/.pgpass",
        "postgresql://host/db",
        "memory://",
    ],
)
def test_a_file_without_a_password_may_be_read_by_all(tmp_path: Path, url: str) -> None:
    assert not holds_password(url)
    path = written(tmp_path, f'db = "{url}"\n')
    path.chmod(0o644)
    assert load_tuner_config(path).db == url


@pytest.mark.parametrize(
    "table",
    [
        '[[webhook]]\nname = "a"\nurl = "{}"',
        '[price_per_kwh]\nurl = "{}"',
        '[series.grid]\nurl = "{}"',
        'base_url = "{}"',
        'otel = "{}"',
    ],
)
def test_an_address_that_cannot_be_split_is_refused_without_its_secret(
    tmp_path: Path, table: str
) -> None:
    path = tmp_path / "tuner.toml"
    path.write_text(table.format("https://ann:s3cret@[::1") + "\n")
    with raised(ConfigError, "tuner.toml, line") as refused:
        load_tuner_config(path)
    assert "s3cret" not in str(refused.value)
