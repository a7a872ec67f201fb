"""Python 3.11's `StrEnum` for Python 3.10, which JetPack 6 has: agents and the actuator run on both."""

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum as StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """A word of a fixed set, whose `str()` is the word itself."""

        __str__ = str.__str__
