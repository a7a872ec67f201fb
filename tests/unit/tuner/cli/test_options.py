from __future__ import annotations

import getpass
import os

import pytest

from tuner.cli.options import user_name


@pytest.mark.parametrize("error", [KeyError, OSError])
def test_a_user_without_a_name_is_its_number(
    error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unnamed() -> str:
        raise error("uid not found")

    monkeypatch.setattr(getpass, "getuser", unnamed)
    assert user_name() == str(os.getuid())
