"""Values of a command line of upstream's daemons; an unknown or unsupported flag is an error of one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from control.flags.kinds import BOOL, Kind

LOGGING = ("log-flush-frequency", "log-json-info-buffer-size", "log-json-split-stream", "log-text-info-buffer-size",
           "log-text-split-stream", "vmodule", "show-hidden-metrics-for-version")  # fmt: skip
"""Taken, with any value, and without effect: they change how upstream's logs are buffered, not what is served."""
Fixed = Mapping[str, tuple[tuple[str, ...], str]]


class FlagError(ValueError):
    """A flag that cannot be meant; the message names it."""


def split(arguments: Sequence[str], switches: Sequence[str]) -> list[tuple[str, str]]:
    """Return the flags with their values as text; `switches` may stand alone. Raises FlagError.

    As pflag: --name=value, --name value, or a switch alone; one dash is for letters (-v).
    """
    found: list[tuple[str, str]] = []
    rest = list(arguments)
    while rest:
        word = rest.pop(0)
        if not word.startswith("-") or word in ("-", "--"):
            raise FlagError(f"unexpected argument: {word}")
        name, has_value, value = word.lstrip("-").partition("=")
        if not word.startswith("--") and name != "v":
            raise FlagError(f"unknown shorthand flag: {word}")
        if not has_value:
            if name in switches:
                value = "true"
            elif rest:
                value = rest.pop(0)
            else:
                raise FlagError(f"flag needs an argument: {word}")
        found.append((name, value))
    return found


def read(
    arguments: Sequence[str], flags: Mapping[str, tuple[str, Kind]], fixed: Fixed, ignored: Sequence[str] = LOGGING
) -> dict[str, Any]:
    """Return field -> value of the flags given; raises FlagError. A flag that stands twice counts as it stands last."""
    switches = [name for name, (_, kind) in flags.items() if kind is BOOL]
    switches += [name for name, (values, _) in fixed.items() if set(values) & {"true", "false"}]
    found: dict[str, Any] = {}
    for name, value in split(arguments, switches):
        if name in flags:
            field, kind = flags[name]
            found[field] = valued(name, value, kind)
        elif name in fixed:
            check(name, value, fixed)
        elif name not in ignored:
            raise FlagError(f"unknown flag: --{name}")
    return found


def valued(name: str, value: Any, kind: Kind) -> Any:
    """Read a flag's value; raises FlagError."""
    try:
        return kind.read(value)
    except (TypeError, ValueError) as error:
        raise FlagError(f"--{name}: {value!r}: {error}") from error


def check(name: str, value: Any, fixed: Fixed) -> None:
    """Raise FlagError if a flag requests something else than what is so anyway."""
    values, why = fixed[name]
    text = str(value).lower() if isinstance(value, bool) else str(value)
    if values and text not in values:
        raise FlagError(f"--{name}={text} is not supported: {why}")
