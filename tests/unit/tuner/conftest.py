from tests.packages import site

__all__ = ["site"]
