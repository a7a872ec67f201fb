"""What Python 3.11 has and Python 3.10, JetPack 6's, has not: agents and the actuator run on both."""

import sys

if sys.version_info >= (3, 11):
    from enum import StrEnum
else:
    from enum import Enum

    class StrEnum(str, Enum):
        """A word of a fixed set; it is its own text."""

        __str__ = str.__str__


__all__ = ["StrEnum"]
