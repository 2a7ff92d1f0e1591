"""Check of kubectl's command lines against the help of the real kubectl: commands, options, their values, and kinds."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from control.resource_metrics.objects import RESOURCES as METRICS
from kube.gateway.objects import KINDS
from kube.resources import RESOURCES, of

_OPTION = re.compile(r"^ {4}(?:(-\w), )?(--[\w-]+)=(.*):$", re.M)
_OF_KINDS = {"get", "describe", "delete", "patch", "label", "annotate", "edit", "expose", "autoscale", "scale"}
PLUGINS = {"krew", "wherry"}
"""Commands of documents that are plugins."""
_UNNAMED = {"all", "componentstatuses", "cs", "crontabs", "crontab"}
"""Resources besides Wherry's own kinds: an alias, one that upstream has deprecated, and the documents' custom one."""


@dataclass(frozen=True)
class Help:
    """The help of one command: its options with whether each takes a value, and its use."""

    text: str
    options: dict[str, bool]
    usage: str

    @property
    def is_group(self) -> bool:
        return re.search(r"^[A-Z].*Commands.*:$", self.text, re.M) is not None


@cache
def _help(*words: str) -> Help:
    text = _printed(*words, "--help")
    options = _read_options(text) | _read_options(_printed("options"))
    usage = text.split("Usage:\n", 1)[-1].splitlines()[0] if "Usage:\n" in text else ""
    return Help(text, options, usage)


def _printed(*words: str) -> str:
    environment = {**os.environ, "KUBECTL_APPLYSET": "true"}
    command = ["kubectl", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    return done.stdout


def _read_options(text: str) -> dict[str, bool]:
    found = {"-h": False, "--help": False}
    for short, long, default in _OPTION.findall(text):
        takes = default not in ("true", "false")
        found |= {long: takes} | ({short: takes} if short else {})
    return found


@cache
def kinds() -> frozenset[str]:
    """Return the names of resources that kubectl accepts from Wherry."""
    names = set(_UNNAMED)
    for each in (*RESOURCES, *METRICS, *map(of, KINDS)):
        names |= {each.plural, each.singular, each.kind.lower(), *each.short_names}
    return frozenset(names)


def problems(words: list[str], whole: bool) -> Iterator[str]:
    """Yield what is wrong with the arguments of kubectl; those of a program in a pod are not looked at."""
    if words and words[0] in PLUGINS:
        return
    path, rest = _command(words)
    known = _help(*path)
    if known.is_group and rest and not rest[0].startswith("-"):
        yield f"{' '.join(['kubectl', *path])} has no command {rest[0]}"
    elif whole and (not path or "SUBCOMMAND" in known.usage):
        yield f"{' '.join(['kubectl', *path])} needs a command"
    positional: list[str] = []
    wanting = ""
    for word in rest:
        if word == "--":
            break
        if wanting:
            wanting = ""
        elif word.startswith("-") and word != "-":
            name, equals, _ = word.partition("=")
            option = name if name in known.options or name.startswith("--") else name[:2]
            if option not in known.options:
                yield f"kubectl {' '.join(path)} has no option {name}"
            elif known.options[option] and not equals and option == name:
                wanting = name
        else:
            positional.append(word)
    if wanting and whole:
        yield f"kubectl {' '.join(path)} {wanting} has no value"
    yield from _positional(path, positional, known)


def _command(words: list[str]) -> tuple[list[str], list[str]]:
    """Return the command and what follows; global options before it are moved behind."""
    path: list[str] = []
    before: list[str] = []
    rest = list(words)
    while rest:
        if rest[0].startswith("-") and rest[0] != "--":
            takes = _help(*path).options.get(rest[0], False) and "=" not in rest[0]
            before += [rest.pop(0)] + ([rest.pop(0)] if takes and rest else [])
        elif _help(*path).is_group and _is_command(path, rest[0]):
            path.append(rest.pop(0))
        else:
            break
    return path, rest + before if not rest or rest[0] != "--" else before + rest


def _is_command(path: list[str], word: str) -> bool:
    """Return whether kubectl has a command, which may be an alias, that the help of its group does not list."""
    if not word.islower():
        return False
    usage = _help(*path, word).usage  # for one that does not exist an error, or the help of the group
    return usage not in ("", _help(*path).usage)


def _positional(path: list[str], words: list[str], known: Help) -> Iterator[str]:
    if path and path[0] in _OF_KINDS and words:
        for kind in words[0].split(","):
            name = kind.partition("/")[0].partition(".")[0]
            if name not in kinds() and not name.isupper():
                yield f"kubectl {path[0]}: there is no resource {kind}"
    elif words and not re.search(r"[A-Z]{3}|\[|\(|\.\.\.|NAME", known.usage.split(" ", 2)[-1]):
        yield f"kubectl {' '.join(path)} takes no {words[0]}"
