"""State file of a simulated device, so that its setting outlives the process as on real hardware."""

from __future__ import annotations

import json
from pathlib import Path

from tuner import files
from tuner.core import ConfigError, Setting, Space


def load_setting(path: Path, space: Space) -> Setting:
    """Load the setting from a file; return the space's default if there is no file.

    Raises:
        ConfigError: the file belongs to another device, or cannot be read.
    """
    try:
        setting = json.loads(path.read_text(encoding="utf-8"))
        space.check(setting)
    except FileNotFoundError:
        return space.default
    except (OSError, ValueError, TypeError, AttributeError) as error:
        raise ConfigError(
            f"{path} does not hold a setting of this simulated device: {error}",
            hint="delete it to start from the defaults",
        ) from error
    return {name: setting[name] for name in space.default}


def save_setting(path: Path, setting: Setting) -> None:
    """Write the file atomically: after a crash it has the old setting or the new one.

    Raises:
        StoreError: the disk refuses.
    """
    files.write(path, json.dumps(dict(setting)))
