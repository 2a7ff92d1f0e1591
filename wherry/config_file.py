"""The configuration file of a machine, /etc/wherry/config.yaml: options of `wherry up` and `wherry join` as keys.

Everything wrong in it is reported at once, each with its line.
"""

from __future__ import annotations

import contextlib
import difflib
import re
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from kube import bounded_files
from wherry import registries
from wherry.command_options import Option
from wherry.errors import WherryError
from wherry.registries import Registry
from wherry.yaml_values import line as line_of
from wherry.yaml_values import scalar, texts

_SECRETS = frozenset({"token", "certificate_key"})
"""Parameters that only root may read."""
_USER_INFORMATION = re.compile(r"://[^/\s]{0,1024}@")
REGISTRIES = Option("registries", "registries", dict, "Image registries.", "none")
"""The only key that is no option of the command line."""
MOST_BYTES = 1 << 20
"""Largest file that is read; a device may have no end."""
_OPTION = re.compile(r"--([a-z][a-z-]*)")


@dataclass(frozen=True, slots=True)
class ConfigFile:
    """The content of a file: the command's parameters with their values, and the line of each option."""

    path: Path
    arguments: Mapping[str, Any] = field(default_factory=dict)
    lines: Mapping[str, int] = field(default_factory=dict)
    exists: bool = True

    def place(self, option: str) -> str:
        return f"{self.path}:{self.lines[option]}"

    def require(self, options: Iterable[str], command: str) -> None:
        """Raise WherryError if there is an option that a command does not have."""
        others = self.lines.keys() - {*options, REGISTRIES.name}
        _fail(
            f"{self.place(name)}: {name} is no option of `{command}`"
            for name in sorted(others, key=self.lines.__getitem__)
        )

    @contextlib.contextmanager
    def located(self, flags: Container[str] = ()) -> Iterator[None]:
        """Put the line before the message of an error that begins with an option of the file, except for those in `flags`."""
        try:
            yield
        except WherryError as error:
            found = _OPTION.match(str(error))
            if found is None or found[1] not in self.lines or found[1] in flags:
                raise
            raise WherryError(f"{self.place(found[1])}: {str(error)[2:]}") from error


def read(
    path: Path, options: Mapping[str, Option], *, ignored: Container[str] = (), must_exist: bool = False
) -> ConfigFile:
    """Return the content of a file, an empty one if there is none; `ignored` are options of other machines.

    Raise WherryError with all that is wrong in it.
    """
    try:
        text = bounded_files.read_text(path, MOST_BYTES)
    except FileNotFoundError as error:
        if must_exist:
            raise WherryError(f"there is no file {path}") from error
        return ConfigFile(path, exists=False)
    except (OSError, UnicodeDecodeError) as error:
        raise WherryError(f"{path} cannot be read: {getattr(error, 'strerror', '') or 'it is not UTF-8'}") from error
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        raise WherryError(_syntax(path, error)) from error
    if root is None:
        return ConfigFile(path)
    if not isinstance(root, yaml.MappingNode):
        raise WherryError(f"{path}:{line_of(root)}: write options as keys, as in `max-pods: 200`")
    lines: dict[str, int] = {}
    arguments: dict[str, Any] = {}
    problems: list[str] = []
    for key, node in root.value:
        name, line = str(key.value), line_of(key)
        option = REGISTRIES if name == REGISTRIES.name else options.get(name)
        if option is None and name in ignored:
            continue
        if option is None:
            near = difflib.get_close_matches(name, [*options, REGISTRIES.name], 1)
            problems.append(
                f"{path}:{line}: there is no option {name}" + (f"; did you mean {near[0]}?" if near else "")
            )
        elif name in lines:
            problems.append(f"{path}:{line}: {name} is set in line {lines[name]}, too")
        else:
            lines[name] = line
            if option is REGISTRIES:
                arguments[option.parameter], wrong = registries.read(node)
                problems += [f"{path}:{where}: {name}: {problem}" for where, problem in wrong]
                continue
            try:
                arguments[option.parameter] = _value(option, node)
            except ValueError as error:
                problems.append(f"{path}:{line_of(node)}: {name}: {error}")
    if _has_secrets(arguments) and path.stat().st_mode & 0o077:
        problems.append(f"{path} contains secrets and other users may read it: `chmod 600 {path}`")
    _fail(problems)
    return ConfigFile(path, arguments, lines)


def _value(option: Option, node: yaml.Node) -> Any:
    """Return the value of an option; raise ValueError if it has another type."""
    if option.name == "registry-mirror" and isinstance(node, yaml.MappingNode):
        return [f"{scalar(host, str)}={scalar(url, str)}" for host, url in node.value]
    if option.type is list:
        return texts(node, f"{option.name}: [a, b]")
    if option.type is str and isinstance(node, yaml.SequenceNode):
        return ",".join(texts(node, ""))
    return scalar(node, option.type)


def _has_secrets(arguments: Mapping[str, Any]) -> bool:
    """Return whether there are tokens, passwords, or URLs with user information."""
    if not _SECRETS.isdisjoint(arguments):
        return True
    by_host: Mapping[str, Registry] = arguments.get(REGISTRIES.parameter, {})
    found = [text for value in arguments.values() for text in (value if isinstance(value, list) else [value])]
    found += [url for one in by_host.values() for url in one.mirrors]
    return any(one.password for one in by_host.values()) or any(
        isinstance(text, str) and _USER_INFORMATION.search(text) for text in found
    )


def _syntax(path: Path, error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    line = f":{mark.line + 1}" if mark else ""
    return f"{path}{line}: {getattr(error, 'problem', None) or 'this is not YAML'}"


def _fail(problems: Iterable[str]) -> None:
    if found := list(problems):
        raise WherryError("\n".join(found))
