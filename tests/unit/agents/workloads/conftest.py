from tests.nvml.fixtures import library, nvml

__all__ = ["library", "nvml"]
