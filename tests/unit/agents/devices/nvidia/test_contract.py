from __future__ import annotations

import pytest

from agents.devices.nvidia.knobs import NvidiaKnobs, discover
from tests.contracts.drivers import DriverContract
from tests.nvml.fake import FakeNvml


class TestNvidiaKnobs(DriverContract):
    @pytest.fixture
    def driver(self, nvml: FakeNvml) -> NvidiaKnobs:
        return discover()[0]
