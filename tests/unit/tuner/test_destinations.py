"""The tables of tuner.toml with the destinations of events."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.errors import raised
from tuner.config import TunerConfig, load_tuner_config
from tuner.core import ConfigError
from tuner.destinations import Subject


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
