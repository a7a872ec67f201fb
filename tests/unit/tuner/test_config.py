"""tuner.toml with its series and destinations, the token file and the port."""

from __future__ import annotations

import asyncio
import json
import socket
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.errors import raised
from tuner.config import (
    SeriesTable,
    Subject,
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


NOON = datetime(2026, 3, 23, 12, 30, tzinfo=UTC)


def config(folder: Path, text: str) -> TunerConfig:
    path = folder / "tuner.toml"
    path.write_text(text)
    return load_tuner_config(path)


def test_a_number_is_a_constant_series(tmp_path: Path) -> None:
    table = config(tmp_path, "price_per_kwh = 0.25").price_per_kwh
    assert table is not None
    assert table.series("price_per_kwh").at(NOON) == 0.25


def test_hours_in_the_configuration_make_a_series(tmp_path: Path) -> None:
    text = '[price_per_kwh]\nrows = [{ hours = "8-20", value = 0.3 }, { value = 0.1 }]\n'
    table = config(tmp_path, text).price_per_kwh
    assert table is not None
    series = table.series("price_per_kwh")
    assert (series.at(NOON), series.at(NOON.replace(hour=3))) == (0.3, 0.1)
    assert "by hour" in series.name


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("price_per_kwh = inf", "price_per_kwh.*inf"),
        ("[price_per_kwh]", "none of constant, rows, csv, url"),
        ('[price_per_kwh]\ncsv = "a"\nurl = "https://b"', "csv and url"),
        ('[price_per_kwh]\nurl = "http://example.org"', "http://example.org"),
        ('[price_per_kwh]\nrows = [{ hours = "8-99", value = 1 }]', "8-99"),
        ("[price_per_kwh]\nrow = []", "unknown key 'row'.*did you mean rows"),
        ('[series.grid]\nconstant = 5\ntime_zone = "Moon"', "Moon"),
    ],
)
def test_an_unfitting_value_is_refused_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config(tmp_path, text)


def test_a_csv_is_read_by_its_columns(tmp_path: Path) -> None:
    file = tmp_path / "prices.csv"
    file.write_text("from,eur_per_mwh\n2026-03-23T12:00Z,80\n2026-03-23T13:00Z,90\n")
    table = SeriesTable(csv=file, time="from", value="eur_per_mwh", scale=0.001)
    series = table.from_csv("price_per_kwh")
    assert series.at(NOON) == pytest.approx(0.08)
    assert str(file) in series.name


def test_an_answer_is_read_by_its_paths() -> None:
    table = SeriesTable(
        url="https://example.org/prices", items="data.list", time="start", value="price.total"
    )
    items = [{"start": NOON.timestamp(), "price": {"total": "0.5"}}]
    series = table.from_json("price_per_kwh", json.dumps({"data": {"list": items}}))
    assert series.at(NOON) == 0.5


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        ("no JSON", "data.list"),
        ('{"data": {"list": 5}}', "data.list"),
        ('{"data": {"list": []}}', "0 values"),
        ('{"data": {"list": [{"time": "then", "value": 1}]}}', "time"),
        ('{"data": {"list": [{"time": 5, "value": "much"}]}}', "much"),
        ('{"data": {"list": [{"time": 5, "value": 1e999}]}}', "inf"),
    ],
)
def test_an_unfit_answer_names_the_missing_part(answer: str, names: str) -> None:
    table = SeriesTable(url="https://example.org/prices", items="data.list")
    with raised(ConfigError, names):
        table.from_json("price_per_kwh", answer)


def test_a_csv_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"prices\.csv"):
        SeriesTable(csv=tmp_path / "prices.csv").from_csv("price_per_kwh")


def read(tmp_path: Path, text: str) -> TunerConfig:
    file = tmp_path / "tuner.toml"
    file.write_text(text)
    return load_tuner_config(file)


def test_webhooks_and_mail_are_read_with_their_defaults(tmp_path: Path) -> None:
    config = read(
        tmp_path,
        """
        [[webhook]]
        name = "slack"
        url = "https://hooks.slack.com/services/T0/B0/secret"
        on = ["violation", "stop"]
        [[webhook]]
        name = "local"
        url = "http://127.0.0.1:9000/jouletune"
        secret_file = "/etc/jouletune/hook-secret"
        [email]
        host = "mail.example.org"
        from = "jouletune <jouletune@example.org>"
        to = ["ops@example.org"]
        """,
    )
    slack, local = config.webhooks
    assert slack.on == {"violation", "stop"} and slack.secret_file is None
    assert slack.shown == "webhook slack (https://hooks.slack.com)"
    assert local.on == set(Subject) and local.secret_file == Path("/etc/jouletune/hook-secret")
    assert config.email is not None
    assert (config.email.port, config.email.tls, config.email.domain) == (
        587,
        "starttls",
        "example.org",
    )
    assert read(tmp_path, "").email is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('[[webhook]]\nname = "a"', "webhook 1 has no url"),
        ('[[webhook]]\nurl = "https://x"', "webhook 1 has no name"),
        ('[[webhook]]\nname = "A b"\nurl = "https://x"', "name cannot be 'A b'"),
        ('[[webhook]]\nname = "email"\nurl = "https://x"', "name cannot be 'email'"),
        ('[[webhook]]\nname = "a"\nurl = "http://hooks.test/x"', "is not encrypted"),
        ('[[webhook]]\nname = "a"\nurl = "ftp://hooks.test/x"', "url is not valid"),
        ('[[webhook]]\nname = "a"\nurl = "https://x"\non = ["drifts"]', "on cannot hold 'drifts'"),
        ('[[webhook]]\nname = "a"\nurl = "https://x"\non = []', "on is empty"),
        ('[[webhook]]\nname = "a"\nurl = "https://x"\nsecret = "y"', "secret"),
        ('[email]\nhost = "x"\nfrom = "a@b"', "to has no addresses"),
        ('[email]\nhost = "x"\nfrom = "a@b"\nto = ["c@d"]\ntls = "yes"', "tls cannot be 'yes'"),
        (
            '[email]\nhost = "x"\nfrom = "a@b"\nto = ["c@d"]\ntls = "none"\nuser = "u"',
            "not sent without encryption",
        ),
    ],
)
def test_meaningless_values_are_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read(tmp_path, text)


def test_a_destinations_name_must_be_unique(tmp_path: Path) -> None:
    one = '[[webhook]]\nname = "a"\nurl = "https://x"\n'
    with raised(ConfigError, "webhook 2", "a"):
        read(tmp_path, one + one)
