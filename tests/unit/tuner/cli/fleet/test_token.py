"""`jouletune token` on a database without a tuner."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from db import open_store
from tuner.cli.app import main
from tuner.core import AccessRole, Caller
from tuner.service.access import Access


@pytest.fixture(autouse=True)
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    made = f"sqlite:///{tmp_path / 'made.sqlite'}"
    open_store(made).close()
    monkeypatch.setenv("JOULETUNE_DB", made)
    monkeypatch.setenv("COLUMNS", "200")
    return made


def test_the_token_alone_is_printed_so_that_it_can_go_to_a_file(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["token", "create", "ann"]) == 0
    out, err = capsys.readouterr()
    assert out.count("\n") == 1
    assert err.startswith("ann: operator until ") and err.endswith("Z, shown only now\n")
    store = open_store(url)
    caller = Access(store, lambda: datetime.now(UTC)).caller(out.strip())
    store.close()
    assert caller == Caller("ann", AccessRole.OPERATOR)


def test_a_role_and_a_lifetime_can_be_requested(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "create", "vera", "--role", "viewer", "--days", "0", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert (made["role"], made["expires_at"]) == ("viewer", None)
    assert main(["token", "create", "ada", "--role", "root"]) == 2
    assert main(["token", "create", "ada", "--days", "-1"]) == 2


def test_an_enrolment_token_needs_no_name_and_shows_its_expiry(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["token", "create", "--enrol"]) == 0
    err = capsys.readouterr().err
    assert err.startswith("enrol-") and ": enrol until " in err
    assert main(["token", "create", "--enrol", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)
    assert made["role"] == "enrol" and made["token"] and made["expires_at"]


def test_tokens_are_listed_and_revoked_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "list"]) == 0
    assert "`jouletune token create`" in capsys.readouterr().out
    assert main(["token", "create", "ann"]) == 0
    secret = capsys.readouterr().out.strip()
    assert main(["token", "revoke", "ann"]) == 0
    assert capsys.readouterr().out == "ann is revoked\n"
    assert main(["token", "list"]) == 0
    listed = capsys.readouterr().out
    assert "ann" in listed and "revoked" in listed and secret not in listed
    assert main(["token", "revoke", "ann"]) == 2
    assert "`jouletune token list`" in capsys.readouterr().err


def test_an_operators_token_needs_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["token", "create"]) == 2
    assert "needs a name" in capsys.readouterr().err
