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

from kube import bounded_files, yaml_errors
from kube.log_lines import escaped
from wherry import registries
from wherry.command_options import Option
from wherry.errors import OptionError, Problem, UsageError, WherryError
from wherry.registries import Registry
from wherry.yaml_values import key_text, scalar, texts
from wherry.yaml_values import line as line_of

_SECRETS = frozenset({"token", "certificate_key"})
"""Parameters that only root may read."""
_USER_INFORMATION = re.compile(r"://[^/\s]{0,1024}@")
REGISTRIES = Option("registries", "registries", dict, "Image registries.", "none")
"""The only key that is no option of the command line."""
MOST_BYTES = 1 << 20
"""Largest file that is read; a device may have no end."""
MIRROR = "write HOST=URL, as in docker.io=http://127.0.0.1:5000"
_OPTION = re.compile(r"--([a-z][a-z0-9-]*)")


_KEYS = "write options as keys, as in `max-pods: 200`"


@dataclass(frozen=True, slots=True)
class FileProblem:
    """Problem of a file: its line, 0 for that of no line, the whole sentence, and the option that has no value."""

    line: int
    text: str
    option: str = ""


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
        fail(
            FileProblem(self.lines[name], f"{self.place(name)}: {name} is no option of `{command}`", name)
            for name in others
        )

    def placed(self, problem: Problem, flags: Container[str] = ()) -> FileProblem:
        """Return a problem with the line of its first option that is in the file and not in `flags`."""
        options = () if problem.option in flags else (problem.option, *problem.others)
        for option in options:
            if option in self.lines and option not in flags:
                text = f"{self.place(option)}: {_without_dashes(problem.text, option)}"
                return FileProblem(self.lines[option], text, option)
        return FileProblem(0, problem.text, problem.option)

    @contextlib.contextmanager
    def located(self, flags: Container[str] = ()) -> Iterator[None]:
        """Put the line before the message of an error that names options of the file, except for those in `flags`.

        Raise UsageError if an option in `flags` has a wrong value, or one is missing that the file has not either.
        """
        try:
            yield
        except OptionError as error:
            text = in_order(self.placed(problem, flags) for problem in error.problems)
            options = {problem.option for problem in error.problems}
            typed = any(option in flags for option in options) or not options & self.lines.keys()
            raise (UsageError if typed else WherryError)(text) from error
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
    found, problems = parse(path, options, ignored=ignored, must_exist=must_exist)
    fail(problems)
    return found


def parse(
    path: Path, options: Mapping[str, Option], *, ignored: Container[str] = (), must_exist: bool = False
) -> tuple[ConfigFile, list[FileProblem]]:
    """Return the content of a file, and what is wrong in it. Raise WherryError if it cannot be read or is not YAML."""
    text = _text(path, must_exist=must_exist)
    if text is None:
        return ConfigFile(path, exists=False), []
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, RecursionError) as error:
        line, why = yaml_errors.sentence(error, text)
        raise WherryError(f"{path}:{line}: {why}" if line else f"{path}: {why}") from error
    if root is None:
        return ConfigFile(path), []
    if not isinstance(root, yaml.MappingNode):
        raise WherryError(f"{path}:{line_of(root)}: {_KEYS}")
    lines: dict[str, int] = {}
    arguments: dict[str, Any] = {}
    problems: list[FileProblem] = []
    for key, node in root.value:
        name, line = key_text(key), line_of(key)
        option = REGISTRIES if name == REGISTRIES.name else options.get(name)
        if option is None and name in ignored:
            continue
        if option is None:
            problems.append(FileProblem(line, f"{path}:{line}: {escaped(_no_option(name, options))}"))
        elif name in lines:
            problems.append(FileProblem(line, f"{path}:{line}: {name} is set in line {lines[name]}, too", name))
        else:
            lines[name] = line
            value, wrong = _read(option, node)
            arguments |= value
            problems += [FileProblem(at, f"{path}:{at}: {name}: {escaped(why)}", name) for at, why in wrong]
    if _has_secrets(arguments) and path.stat().st_mode & 0o077:
        why = f"{path} contains secrets and other users may read it: `chmod 600 {path}`"
        problems.append(FileProblem(0, why))
    return ConfigFile(path, arguments, lines), problems


def _text(path: Path, *, must_exist: bool) -> str | None:
    """Return the text of a file, None if there is none. Raise WherryError."""
    try:
        return bounded_files.read_text(path, MOST_BYTES)
    except FileNotFoundError as error:
        if must_exist:
            raise WherryError(f"there is no file {path}") from error
        return None
    except PermissionError as error:
        raise WherryError(f"{path} cannot be read: Permission denied: run it with sudo") from error
    except (OSError, UnicodeDecodeError) as error:
        raise WherryError(f"{path} cannot be read: {getattr(error, 'strerror', '') or 'it is not UTF-8'}") from error


def _no_option(name: str, options: Mapping[str, Option]) -> str:
    if not name:
        return _KEYS
    near = difflib.get_close_matches(name[:100], [*options, REGISTRIES.name], 1)
    return f"there is no option {name[:100]}" + (f"; did you mean {near[0]}?" if near else "")


def _read(option: Option, node: yaml.Node) -> tuple[dict[str, Any], list[tuple[int, str]]]:
    """Return the argument of an option, none if it is wrong, and what is wrong with it by line."""
    if option is REGISTRIES:
        found, problems = registries.read(node)
        return {option.parameter: found}, problems
    try:
        return {option.parameter: _value(option, node)}, []
    except ValueError as error:
        return {}, [(line_of(node), str(error))]


def _without_dashes(text: str, option: str) -> str:
    return text[2:] if re.match(rf"--{option}[ :]", text) else text


def _value(option: Option, node: yaml.Node) -> Any:
    """Return the value of an option; raise ValueError if it has another type."""
    if option.name == "registry-mirror" and isinstance(node, yaml.MappingNode):
        return [f"{scalar(host, str)}={scalar(url, str)}" for host, url in node.value]
    if option.type is list:
        found = texts(node, f"{option.name}: [a, b]")
        for pair in found if option.name == "registry-mirror" else ():
            if not pair.partition("=")[2]:
                raise ValueError(f"{pair}: {MIRROR}")
        return found
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


def fail(problems: Iterable[FileProblem]) -> None:
    """Raise WherryError with all problems, if there are any."""
    if found := in_order(problems):
        raise WherryError(found)


def in_order(problems: Iterable[FileProblem]) -> str:
    """Return the sentences of problems in the order of their lines."""
    return "\n".join(each.text for each in sorted(problems, key=lambda problem: (problem.line == 0, problem.line)))
