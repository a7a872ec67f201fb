"""Unusable certificates are named before the first request is served or sent."""

from __future__ import annotations

from pathlib import Path

import pytest
import trustme

from tests.errors import raised
from tuner.config import TunerConfig, load_tuner_config
from tuner.core import ConfigError
from tuner.tls import ClientTls, ServerTls


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path, authority: trustme.CA) -> Path:
    cert = authority.issue_cert("tuner.test")
    cert.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    cert.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.issue_cert("other.test").private_key_pem.write_to_path(tmp_path / "other.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    return tmp_path


def test_options_that_belong_together_are_required_together(files: Path) -> None:
    with raised(ConfigError, "tls_cert", "tls_key"):
        ServerTls(cert=files / "cert.pem")
    with raised(ConfigError, "client_ca"):
        TunerConfig(client_ca=files / "ca.pem")


def test_unusable_files_are_named(files: Path) -> None:
    whole = ServerTls(cert=files / "cert.pem", key=files / "key.pem", client_ca=files / "ca.pem")
    whole.check()
    for key, message in (
        ("none.pem", "No such file"),
        ("other.pem", "cert.pem"),
        ("ca.pem", "cert"),
    ):
        with pytest.raises(ConfigError, match=message):
            ServerTls(cert=files / "cert.pem", key=files / key).check()
    with raised(ConfigError, "client_ca"):
        ServerTls(
            cert=files / "cert.pem", key=files / "key.pem", client_ca=files / "key.pem"
        ).check()
    with raised(ConfigError, "ca_file"):
        ClientTls(ca=files / "none.pem").context()
    with raised(ConfigError, "client_cert", "client_key"):
        ClientTls(cert=files / "cert.pem", key=files / "other.pem").context()


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.0.0.7", "tuner.example.org"])
def test_tokens_are_not_sent_in_the_clear_unless_a_proxy_is_declared(
    host: str, files: Path
) -> None:
    with raised(ConfigError, "TLS", host):
        TunerConfig(host=host).check_reach()
    TunerConfig(host=host, behind_proxy=True).check_reach()
    file = files / "tuner.toml"
    file.write_text(
        f'host = "{host}"\ntls_cert = "{files}/cert.pem"\ntls_key = "{files}/key.pem"\n'
    )
    load_tuner_config(file).check_reach()
    TunerConfig().check_reach()
