"""Descriptions of fields for operators, from which options, forms and documents are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from tuner.errors import InvalidInput

_YES_NO = ("yes", "no")


@dataclass(frozen=True, slots=True)
class Described:
    """One sentence about a field for operators, and its unit or kind, as `SECONDS`."""

    help: str
    unit: str = ""

    def __get_pydantic_json_schema__(
        self,
        schema: object,
        handler: Callable[[object], dict[str, Any]],
    ) -> dict[str, Any]:
        """Return the field's JSON Schema with its description."""
        return {**handler(schema), "description": self.help}


@dataclass(frozen=True, slots=True)
class DescribedField:
    """A described field; its values are of type `kind`: bool, int, float, str, or an enumeration."""

    name: str
    kind: type
    default: Any
    about: Described

    @property
    def label(self) -> str:
        """The field's name without unit, in words."""
        return self.name.removesuffix("_s").replace("_", " ")

    @property
    def option(self) -> str:
        """The option of commands; of a boolean that is true by default, with its opposite."""
        plain = self.label.replace(" ", "-")
        return (
            f"--{plain}/--no-{plain.removeprefix('allow-')}"
            if self.default is True
            else f"--{plain}"
        )

    @property
    def values(self) -> Sequence[str]:
        """The texts of which a form offers one: of a boolean or an enumeration; empty for another kind."""
        return (
            _YES_NO if self.kind is bool else tuple(getattr(self.kind, "__members__", {}).values())
        )

    @property
    def numeric(self) -> bool:
        """Whether the values are numbers."""
        return self.kind in (int, float)

    @property
    def text(self) -> str:
        """The default as text; empty if it is left open."""
        if self.kind is bool:
            return _YES_NO[not self.default]
        return "" if self.default is None else str(self.default)

    def read(self, text: str) -> Any:  # noqa: ANN401  a value of `kind`
        """Return the value of a text. Raises InvalidInput."""
        if self.values and text not in self.values:
            raise InvalidInput(
                f"{self.name} cannot be {text!r}", hint=f"choose {', '.join(self.values)}"
            )
        try:
            return text == _YES_NO[0] if self.kind is bool else self.kind(text)
        except ValueError:
            raise InvalidInput(
                f"{self.name}: {text!r} is not a number", hint="write it like 10 or 0.5"
            ) from None


def described_fields(*kinds: type) -> Sequence[DescribedField]:
    """Return the described fields of dataclasses, in order."""
    listed = []
    for kind in kinds:
        hints = get_type_hints(kind, include_extras=True)
        for field in fields(kind):
            marked = hints[field.name]
            for about in getattr(marked, "__metadata__", ()):
                if isinstance(about, Described):
                    default = None if field.default is MISSING else field.default
                    listed.append(DescribedField(field.name, _bare(marked), default, about))
    return listed


def _bare(kind: Any) -> type:  # noqa: ANN401  any annotation
    """Return the class of an annotation without its marks and without None."""
    if isinstance(kind, type):
        return kind
    inner = get_args(kind)
    return _bare(
        inner[0] if get_origin(kind) is Annotated else next(a for a in inner if a is not type(None))
    )
