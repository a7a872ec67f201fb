"""The family of errors. Each docstring gives the caller's next step.

This module has the errors that the root process uses; `tuner.core.errors` has the others.

TuningError
├─ InvalidInput (ValueError)        the operator's or the peer's input is wrong: say so, change nothing
│   ├─ UnknownKnob                  name the knobs there are
│   ├─ OutOfRange                   name the values there are
│   ├─ TooLarge                     say how much is allowed
│   ├─ ConstraintSyntax             show a constraint that parses
│   ├─ MetricUnavailable            name the metrics there are and the ways out
│   └─ ConfigError                  name the file and the key
├─ NotFound (LookupError)           there is no such study, trial or device
├─ Conflict                         the state does not allow it: read again, then decide
│   ├─ IllegalTransition            a trial or a study cannot go there from where it is
│   ├─ StaleToken                   a newer attempt owns this trial: stop working on it
│   ├─ StaleRevision                the study was changed since it was read: read it again
│   ├─ Unreadable                   the stored study cannot be read: leave it out, continue with the others
│   └─ DeviceBusy                   the device belongs to another active study
├─ Unauthorised (PermissionError)   no token, or not the right one
│   └─ Forbidden                    the token is valid, but for something else
├─ ActuationError                   the trial is FAILED and the device goes back to what it was
│   ├─ KnobRefused                  leave the knob out: the hardware never takes it
│   └─ DeviceLost                   no further trials on this device until it answers again
├─ MeasurementError                 the trial is FAILED: no number is better than a wrong one
│   └─ SettingContested             end the hold: another program sets the same knob
├─ LinkError (ConnectionError)      back off and try again; keep the hold meanwhile
│   └─ ProtocolMismatch             do not retry: one side must be upgraded
└─ StoreError                       the database does not answer: say which one, stop, lose nothing
"""


class TuningError(Exception):
    """Base of the family. `code` is its machine-readable name on the wire and in `--json` output.

    `key` is the key of a draft or a file that the error is about; empty if it is about no single key.
    """

    code, key = "error", ""

    def __init_subclass__(cls, *, code: str = "") -> None:
        cls.code = code or cls.code

    def __init__(self, message: str, *, hint: str = "") -> None:
        """Make an error: `message` has the fault and its place, `hint` the next step."""
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class InvalidInput(TuningError, ValueError, code="invalid_input"):
    """Input that cannot be used. Report it to its sender; nothing has been changed."""


class UnknownKnob(InvalidInput, code="unknown_knob"):
    """A setting names a knob that the space does not have. Correct the name."""


class OutOfRange(InvalidInput, code="out_of_range"):
    """A value, or a combination of values, is not in the space. Choose one that is."""


class ConfigError(InvalidInput, code="config"):
    """A configuration file or option is wrong. Correct the named key; nothing was started."""


class NotFound(TuningError, LookupError, code="not_found"):
    """The named thing does not exist. List the existing ones; do not retry."""


class Conflict(TuningError, code="conflict"):
    """The present state does not allow this. Read the state again, then decide."""


class DeviceBusy(Conflict, code="device_busy"):
    """The device belongs to another active study. Stop that one first."""


class Unauthorised(TuningError, PermissionError, code="unauthorised"):
    """The bearer token is missing or wrong. Give the right one; do not retry with the same."""


class ActuationError(TuningError, code="actuation"):
    """The setting is not in force. Undo the applied part; the trial is FAILED."""


class KnobRefused(ActuationError, code="knob_refused"):
    """The hardware refuses a knob at every value. Nothing was changed; leave `knob` out from now on."""

    def __init__(self, message: str, *, hint: str = "", knob: str = "") -> None:
        super().__init__(message, hint=hint)
        self.knob = knob


class DeviceLost(ActuationError, code="device_lost"):
    """The device no longer answers. Start no trial on it until it does."""


class StoreError(TuningError, code="store"):
    """The database does not answer or refuses. Nothing is half-written; stop, and name the database."""
