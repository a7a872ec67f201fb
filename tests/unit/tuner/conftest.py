import pytest

from tests.packages import site
from tests.unit.tuner.study.worlds import World, truth

__all__ = ["site"]


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def held(world: World) -> World:
    """A world whose study holds."""
    world.start()
    world.run(truth)
    return world
