"""A knob written to a file, which the service reads at its start or on a reload."""

from __future__ import annotations

import json

from agents.workloads.http.knob_config import KnobFile, LoadTable
from agents.workloads.http.reading import ReadValue, UnlistedValue, is_at, settle
from tuner import files
from tuner.core import ActuationError, Clock, Knob, Plan, StoreError, Value, reraised

PENDING = ".pending"
"""Suffix of the marker of a file that the service has not read yet."""
EXAMPLE = 200


class KnobInFile:
    """Write one knob's value to its file, and track the value that the service uses.

    The value in force is that of the file, by its content as a whole; with `reading`, the one that
    the service reports. A crash between writing and restarting leaves a marker, so that the restart
    is repeated.
    """

    def __init__(
        self,
        knob: Knob,
        file: KnobFile,
        table: LoadTable | None,
        clock: Clock,
        reading: ReadValue | None,
    ) -> None:
        self.knob, self.table = knob, table
        self._file, self._path, self._clock, self._reading = file, file.file, clock, reading
        self._pending = self._path.with_name(self._path.name + PENDING)
        self._plan: Plan | None = None
        self._plain = False

    def read(self) -> Value:
        """Return the value in force; under a plan that of its first row, unless the service reports it.

        Raises:
            ActuationError: the file is missing, or its content matches none of the values.
            DeviceLost: the service does not report the value in force.
        """
        if self._reading is not None:
            return self._reading()
        if self._pending.exists():
            raise UnlistedValue(
                f"{self._path} was written, but the service has not restarted since",
                hint="set it again to restart the service",
            )
        if self._content() is None:
            raise UnlistedValue(
                f"there is no {self._path}",
                hint=f"create it with the default: {self._at(self.knob.default)[:EXAMPLE]!r}",
            )
        value = self._written()
        if value is not None:
            return value
        plan = self.plan()
        if plan is not None:
            return plan.rows[0].setting[self.knob.name]
        raise UnlistedValue(
            f"{self._path} does not contain a value of {self.knob.name}",
            hint="set the knob to rewrite the file",
        )

    def is_at(self, value: Value) -> bool:
        """Return whether this value, and no plan, is in force.

        Raises ActuationError, DeviceLost.
        """
        if self._plain or self._pending.exists() or self._written() != value:
            return False
        return self._reading is None or is_at(self._reading, value)

    def write(self, value: Value) -> None:
        """Write a value; it is not in force yet. Raises ActuationError."""
        self._replace(self._at(value))

    def verify(self, value: Value) -> None:
        """Read back the value that the service uses; without a reading, wait for the change's duration.

        Raises:
            ActuationError, DeviceLost: it is at another value.
        """
        if self.knob.cost.restart:  # it is ready again, with the content read at its start
            now = self.read()
            if now != value:
                raise ActuationError(
                    f"{self._path} has {self.knob.name}={value}, but the service uses {now}",
                    hint="check its log",
                )
            return
        settle(str(self._path), self.knob, self.read, value, self._clock)
        if self._reading is None:
            self._clock.sleep(self.knob.cost.seconds)

    def unproven(self) -> str:
        """Return why the service's value is unknown; empty if the service reports it."""
        if self._reading is not None:
            return ""
        return f"it is read from {self._path} only; the service does not report it"

    def follows(self, plan: Plan) -> bool:
        """Return whether the service can follow a plan itself."""
        return self.table is not None and self.table.by == plan.by

    def write_plan(self, plan: Plan) -> bool:
        """Write a plan's table; return False if it, or its plain decoding, is in force already.

        Raises:
            ActuationError: it cannot be written.
        """
        assert self.table is not None
        if self._plain and self.plan() == plan:
            return False
        content = self._file.planned(self.table.plan(plan, self.knob.name))
        unchanged = self._says(content) and not self._pending.exists()
        if not unchanged:
            self._replace(content)
        self._plan = plan
        return not unchanged

    def verify_plan(self, plan: Plan) -> None:
        """Check that the service reports a value of a plan, if it reports any.

        Raises:
            ActuationError, DeviceLost: it is at another value.
        """
        if self._reading is None:
            return
        now, values = self._reading(), [row.setting[self.knob.name] for row in plan.rows]
        if now not in values:
            raise ActuationError(
                f"{self._path} has a table with {values}, but the service uses {now}",
                hint="check its log",
            )

    def fall_back(self, plan: Plan, *, plain: bool) -> None:
        """Write length 0 instead of a plan's table, or the table again. Raises ActuationError."""
        self._plain = False
        if plain:
            self._replace(self._at(0))
            self._plan, self._plain = plan, True
        else:
            self.write_plan(plan)

    def plan(self) -> Plan | None:
        """Return the plan whose table, or length 0 instead of it, is in force.

        Raises ActuationError.
        """
        plan, table = self._plan, self.table
        if plan is None or table is None or self._pending.exists():
            return None
        if self._plain:
            return plan if self._says(self._at(0)) else None
        return plan if self._says(self._file.planned(table.plan(plan, self.knob.name))) else None

    def taken_up(self) -> None:
        """Note that the service has read the file. Raises ActuationError."""
        with reraised(ActuationError, StoreError):
            files.remove(self._pending)

    def _replace(self, content: str) -> None:
        """Mark the file as pending, and write it; this ends a plan. Raises ActuationError."""
        self._plan, self._plain = None, False
        with reraised(ActuationError, StoreError):
            files.touch(self._pending)
            files.write(self._path, content, keep_mode=True)

    def _at(self, value: Value) -> str:
        """Return the file's content for a value."""
        return self._file.content(value, self.table)

    def _written(self) -> Value | None:
        """Return the value whose content matches the file; None if no value matches."""
        return next((v for v in self.knob.values if self._says(self._at(v))), None)

    def _says(self, content: str) -> bool:
        """Return whether the file has this content, ignoring the layout of JSON.

        Raises ActuationError.
        """
        now = self._content()
        if now is None:
            return False
        if self._file.text is not None:
            return now.strip() == content.strip()
        try:
            return bool(json.loads(now) == json.loads(content))
        except ValueError:
            return False

    def _content(self) -> str | None:
        """Return the file's content; None without a file. Raises ActuationError."""
        try:
            return self._path.read_text(encoding="utf-8")
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise ActuationError(f"cannot read {self._path}: {error}") from None
