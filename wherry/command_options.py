"""The options of a command, read from its function: their names, types, texts and defaults."""

from __future__ import annotations

import inspect
import types
import typing
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from typer.models import OptionInfo, ParameterInfo

DEFAULT = " Default: "
OF_THE_COMMAND_LINE = frozenset({"prefix", "unset"})
"""Parameters that have a meaning on the command line only."""


@dataclass(frozen=True, slots=True)
class Option:
    """An option or an argument: `name` is its long name without dashes, `type` one of str, int, bool and list."""

    name: str
    parameter: str
    type: type
    text: str
    default: str


def options_of(command: Callable[..., Any]) -> dict[str, Option]:
    """Return the options of a command's function by name, without those of the command line only."""
    hints = typing.get_type_hints(command, include_extras=True)
    found = {}
    for parameter in inspect.signature(command).parameters:
        if parameter not in OF_THE_COMMAND_LINE:
            kind, info = typing.get_args(hints[parameter])
            option = _option(parameter, kind, info)
            found[option.name] = option
    return found


def _option(parameter: str, kind: Any, info: ParameterInfo) -> Option:
    declared = (
        [name for name in info.param_decls or () if name.startswith("--")] if isinstance(info, OptionInfo) else []
    )
    name = max(declared, key=len, default="").lstrip("-") or parameter.replace("_", "-")
    text, _, default = (info.help or "").partition(DEFAULT)
    return Option(name, parameter, _plain(kind), text, default.removesuffix("."))


def _plain(kind: Any) -> type:
    """Return the type without `None` and without the type of a list's items."""
    if isinstance(kind, types.UnionType):
        (kind,) = (each for each in typing.get_args(kind) if each is not types.NoneType)
    plain: type = typing.get_origin(kind) or kind
    return plain
