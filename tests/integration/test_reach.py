"""A tuner that other machines can reach: its answers and its warnings."""

from __future__ import annotations

import ssl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest
import trustme

from agents.tuner_link.client import TunerClient, connect
from agents.tuner_link.credentials import Credentials
from agents.tuner_link.spool import Spool
from tests.builders import applied, device
from tests.integration.stage import Stage, stage
from tuner.cli.app import main
from tuner.core import Forbidden
from tuner.tls import ClientTls
from tuner.wire import Poll, Release


def addressed_to(site: Stage, name: str) -> int:
    url = f"http://127.0.0.1:{site.tuner_port}/v1/health"
    return httpx2.get(url, headers={"Host": name}, timeout=60.0).status_code


def test_a_tuner_behind_a_proxy_answers_to_its_names_and_warns_without_tls(
    tmp_path: Path,
) -> None:
    reach = 'host = "0.0.0.0"\nbehind_proxy = true\n'
    with stage(tmp_path, f'{reach}names = ["Tuner.test"]\n') as site:
        site.start_tuner()
        assert addressed_to(site, f"tuner.test:{site.tuner_port}") == 200
        assert addressed_to(site, "other.test") == 400
        log = site.log("tuner")
        assert f"WARNING event=no_tls on 0.0.0.0:{site.tuner_port}" in log
        assert (
            "INFO event=names allowed host names are 0.0.0.0, 127.0.0.1, ::1, localhost, tuner.test;"
            in log
        )


@pytest.mark.parametrize("behind_proxy", [False, True])
def test_the_callers_address_comes_from_a_proxy_only_if_configured(
    tmp_path: Path, behind_proxy: bool
) -> None:
    with stage(tmp_path, "behind_proxy = true\n" if behind_proxy else "") as site:
        site.start_tuner()
        url = f"http://127.0.0.1:{site.tuner_port}/v1/studies"
        codes = set()
        for guess in range(30):
            headers = {"Authorization": "Bearer wrong", "X-Forwarded-For": f"192.0.2.{guess}"}
            codes.add(httpx2.get(url, headers=headers, timeout=60.0).status_code)
        assert codes == ({401} if behind_proxy else {401, 429})


def test_without_names_it_warns_of_those_it_guessed(tmp_path: Path) -> None:
    with stage(tmp_path, 'host = "0.0.0.0"\nbehind_proxy = true\n') as site:
        site.start_tuner()
        assert "WARNING event=names allowed host names are " in site.log("tuner")


def test_without_tls_only_loopback_is_served_unless_a_proxy_is_declared(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tuner", "serve", "--db", "memory://", "--host", "0.0.0.0", "--port", "0"]) == 2
    err = capsys.readouterr().err
    assert "no TLS on 0.0.0.0: tokens would be sent in clear text" in err
    assert "tls_cert and tls_key" in err and "--behind-proxy" in err


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def encrypted(tmp_path: Path, authority: trustme.CA) -> Iterator[Stage]:
    """A tuner with a certificate, which requires one from agents."""
    cert = authority.issue_cert("localhost", "127.0.0.1")
    cert.cert_chain_pems[0].write_to_path(tmp_path / "cert.pem")
    cert.private_key_pem.write_to_path(tmp_path / "key.pem")
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    client = authority.issue_cert("agent@host")
    client.private_key_and_cert_chain_pem.write_to_path(tmp_path / "client.pem")
    toml = f'tls_cert = "{tmp_path}/cert.pem"\ntls_key = "{tmp_path}/key.pem"\n'
    with stage(tmp_path, f'{toml}client_ca = "{tmp_path}/ca.pem"\n') as site:
        site.tls = ssl.create_default_context(cafile=tmp_path / "ca.pem")
        site.start_tuner()
        yield site


def test_a_client_that_does_not_trust_the_tls_authority_sends_nothing(
    encrypted: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert f"serving https://127.0.0.1:{encrypted.tuner_port}" in encrypted.log("tuner")
    command = ["device", "list", "--tuner", f"https://127.0.0.1:{encrypted.tuner_port}"]
    command += ["--token-file", str(encrypted.token_file)]
    assert main(command) == 2
    assert "certificate verify failed" in capsys.readouterr().err
    monkeypatch.setenv("JOULETUNE_CA_FILE", str(encrypted.folder / "ca.pem"))
    assert main(command) == 0
    assert "no devices yet" in capsys.readouterr().out


def test_an_agent_needs_a_certificate_if_the_tuner_demands_one(
    encrypted: Stage, tmp_path: Path
) -> None:
    @contextmanager
    def link(cert: Path | None) -> Iterator[TunerClient]:
        credentials = Credentials(tmp_path / "agent", encrypted.token_file, "agent@host")
        tls = ClientTls(ca=tmp_path / "ca.pem", cert=cert)
        with connect(f"https://127.0.0.1:{encrypted.tuner_port}", tls) as http:
            yield TunerClient(http, credentials, Spool(tmp_path / "spool"))

    (tmp_path / "agent").mkdir()
    with link(None) as bare, pytest.raises(Forbidden, match="sent no client certificate"):
        bare.register(device("gpu"))
    with link(tmp_path / "client.pem") as known:
        known.register(device("gpu"))
        order = known.next("gpu", Poll(agent="agent@host/1", applied=applied("gpu")))
    assert isinstance(order, Release)


def test_a_tuner_on_loopback_warns_of_nothing(tmp_path: Path) -> None:
    with stage(tmp_path) as site:
        site.start_tuner()
        assert "WARNING" not in site.log("tuner")
