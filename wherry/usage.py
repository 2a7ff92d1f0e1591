"""Errors of the command line: a value of the wrong type is refused in the command's own words, not in its libraries'."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup


class CommandLine(TyperGroup):
    """The commands; arguments are converted to their types when one is chosen, by the library for command lines."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except typer.BadParameter as error:
            if error.__cause__ is not None:  # what converts values, and explains it by Python's types
                error.message = _wrong_value(error)
            raise


def _wrong_value(error: typer.BadParameter) -> str:
    """Return why a value is refused, by the type of its parameter."""
    param = error.param
    found: list[dict[str, Any]] = getattr(error.__cause__, "errors", list)()
    value = found[0].get("input") if found else None
    given = f"{value!r} is " if isinstance(value, str | int) else ""
    least, most = getattr(param, "min", None), getattr(param, "max", None)
    if not _is_number(param):
        return f"{given}not a text in UTF-8"
    if least is not None and most is not None:
        return f"{given}not a whole number from {least} to {most}"
    return f"{given}not a whole number" if least is None else f"{given}not a whole number of at least {least}"


def _is_number(param: Any) -> bool:
    annotation = getattr(getattr(param, "type_descriptor", None), "annotation", None)
    return "int" in str(annotation) or getattr(getattr(param, "type", None), "name", "").startswith("int")
