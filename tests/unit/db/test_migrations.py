from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory

from db import SCHEMA
from tests.contracts.migrations import MigrationsContract


class TestMigrations(MigrationsContract):
    @pytest.fixture
    def empty(self, tmp_path: Path) -> Callable[[], str]:
        numbers = count()

        def make() -> str:
            path = tmp_path / f"{next(numbers)}.db"
            path.touch()
            return f"sqlite:///{path}"

        return make


def test_the_program_knows_its_newest_schema() -> None:
    config = Config()
    config.set_main_option("script_location", "db:migrations")
    assert ScriptDirectory.from_config(config).get_heads() == [SCHEMA]


def test_developers_find_the_migrations_without_a_path_of_this_machine() -> None:
    ini = Path(__file__).parents[3] / "db" / "alembic.ini"
    assert ScriptDirectory.from_config(Config(ini)).get_heads() == [SCHEMA]
    assert Config(ini).get_main_option("script_location") == "db:migrations"
