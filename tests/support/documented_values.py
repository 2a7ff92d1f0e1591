"""Check of the values in documented `wherry` commands: by the command's own checks, none of which gets to a machine.

A command that has formats checks its values first, and is called until it asks for root or for the installation. Options of
`up` and `join` are checked as a whole, without what depends on the machine: its addresses and files.
"""

from __future__ import annotations

import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from unittest import mock

from kube import bootstrap_tokens
from wherry import addons, caller_kubeconfig, option_checks, settings, snapshot_names, tokens, wanted
from wherry.command_options import options_of
from wherry.config_file import ConfigFile
from wherry.errors import WherryError
from wherry.join_options import problems as join_problems
from wherry.settings import Settings
from wherry.tool_commands import DAEMONS, SHELLS

_PLACEHOLDER = re.compile(r"\b[A-Z]{2,}\b|[…$<]|\.\.\.")
_MACHINE = ("there is no such file", "there is no such folder", "cannot be read", "there is no file", "service range")
"""Parts of messages about files of the machine that runs the test, and other options of the cluster that a page is about."""


class _Reached(Exception):
    """A command has checked its values, and would act."""


def problems(command: str, callback: Callable[..., Any], params: dict[str, Any]) -> Iterator[str]:
    """Yield what a command refuses of its values; those in capitals, such as FILE, stand for others and are left out."""
    given = {name: value for name, value in params.items() if not _stands_for_another(value)}
    if command in ("up", "join"):
        yield from _of_a_machine(callback, given)
    elif check := _CHECKS.get(command):
        yield from check(given)
    elif "format" in params:
        yield from _called(callback, params, given)


def _stands_for_another(value: Any) -> bool:
    texts = value if isinstance(value, list | tuple) else [value]
    return any(_PLACEHOLDER.search(str(text)) for text in texts if isinstance(text, str | Path))


def _of_a_machine(callback: Callable[..., Any], given: dict[str, Any]) -> Iterator[str]:
    known = options_of(callback)
    flags = {name: value for name, value in wanted.given(given).items() if value is not None}
    try:
        chosen = wanted.merge(Settings(node_name="n1"), ConfigFile(Path("/none"), exists=False), flags, known)
    except WherryError as error:
        yield str(error)
        return
    names = wanted.names(flags, known) - {"node-ip"}  # which this machine does not have
    for problem in (*option_checks.problems(chosen, None), *join_problems(given)):
        related = not names.isdisjoint((problem.option, *problem.others)) or problem.option in given
        if related and not any(part in problem.text for part in _MACHINE):
            yield problem.text
    yield from (text for text in addons.unknown(chosen.disable, Path("/none")) if "did you mean" in text)


def _called(callback: Callable[..., Any], params: dict[str, Any], given: dict[str, Any]) -> Iterator[str]:
    """Call a command until it has checked its values."""
    if params.keys() - given.keys() - {"prefix"} and "words" in params:
        return
    with contextlib.ExitStack() as stack:
        for module in [module for name, module in sys.modules.items() if name.startswith("wherry.")]:
            for name in ("root", "installed", "control_plane"):
                if callable(getattr(module, name, None)):
                    stack.enter_context(mock.patch.object(module, name, _reach))
        stack.enter_context(mock.patch.object(settings, "load", _reach))
        stack.enter_context(mock.patch.object(caller_kubeconfig, "paths", _reach))
        try:
            callback(**{name: given.get(name, "" if name == "to" else value) for name, value in params.items()})
        except _Reached:
            return
        except WherryError as error:
            yield str(error)
        else:
            yield "it was run"


def _reach(*arguments: Any, **options: Any) -> Any:
    raise _Reached


def _known(name: str, values: tuple[str, ...]) -> Callable[[dict[str, Any]], Iterator[str]]:
    def check(given: dict[str, Any]) -> Iterator[str]:
        if given.get(name) and given[name] not in values:
            yield f"{given[name]} is none of {', '.join(values)}"

    return check


def _refused(action: Callable[[dict[str, Any]], Any]) -> Callable[[dict[str, Any]], Iterator[str]]:
    def check(given: dict[str, Any]) -> Iterator[str]:
        try:
            action(given)
        except (WherryError, bootstrap_tokens.TokenError) as error:
            yield str(error)

    return check


def _token(given: dict[str, Any]) -> None:
    tokens.lifetime(given.get("ttl") or "24h")
    if given.get("token"):
        bootstrap_tokens.parse(given["token"])


_CHECKS: dict[str, Callable[[dict[str, Any]], Iterator[str]]] = {
    "completion": _known("shell", SHELLS),
    "logs": _known("daemon", DAEMONS),
    "token create": _refused(_token),
    "snapshot save": _refused(lambda given: snapshot_names.manual(given.get("name") or "", datetime.now(UTC))),
}
