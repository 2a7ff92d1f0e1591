"""Check of a document's command lines without running them: programs, commands, options, arguments, and folders.

`wherry` is read by its own command line, kubectl by its help (kubectl_help.py), other programs by their help, or by the words
that `ABSENT` lists. A folder that a line writes into is one that the page created before.
"""

from __future__ import annotations

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import typer

from tests.support import documented_values, kubectl_help, shell_words
from tests.support.page_commands import ROOT, Line
from wherry.main import app

ABSENT: dict[str, str] = {
    "cilium": "install --set",
    "crictl": "ps pull exec images -a --creds --no-trunc",
    "firewall-cmd": "--list-all",
    "jaeger": "",
    "k0s": "backup",
    "minikube": "tunnel",
    "vagrant": "up rsync ssh halt reload destroy provision box status snapshot suspend resume --name --provision -f",
}
"""Programs that a machine of the tests may lack, with their commands and options in documents."""
UNDOCUMENTED: dict[str, str] = {
    "systemctl": "kill --kill-whom",
    "apt-get": "purge --download-only --no-install-recommends",
    "pytest": "--kubernetes-history",
    "git": "log rev-parse -1 --format",
    "nft": "insert list flush",
    "tar": "-xf",
    "find": "-type",
    "iptables": "-t -L",
    "docker": "save -o",
    "etcdctl": "get del defrag --prefix --print-value-only",
    "openssl": "x509 -text",
    "ip": "-j",
}
"""Words that the help of a program lacks, or has in another form: checked by hand."""
VERBS = set("apt-get pip systemctl docker etcdctl openssl ip nft update-alternatives timedatectl git".split())
"""Programs whose first argument is a command of theirs."""
BUILT_IN = {"cd", "export", "test", "umask", "source"}
PLAIN = {"sudo"}
PROGRAMS = frozenset(
    {
        *ABSENT,
        *UNDOCUMENTED,
        *VERBS,
        *PLAIN,
        "kubectl",
        "wherry",
        "python",
        "python3",
        "curl",
        "ss",
        "chmod",
        "chown",
        "df",
    }
    | {
        "ls",
        "cat",
        "which",
        "sha256sum",
        "ctr",
        "journalctl",
        "modprobe",
        "pip",
        "iptables",
        "dpkg",
        "conntrack",
        "ipset",
    }
    | {
        "patchelf",
        "sysctl",
        "nsenter",
        "systemd-analyze",
        "systemd-inhibit",
        "id",
        "rm",
        "mkdir",
        "cp",
        "man",
        "pytest",
    }
    | {f"scripts/{path.name}" for path in (ROOT / "scripts").iterdir()}
)
"""First words of spans in backticks that are commands."""
ROLES = {"server", "agent", "proxy", "dns"}
_PYTHON = re.compile(r"(\S*/)?python3?$")
_OURS = re.compile(r"(/opt/wherry(\.new)?/bin/)?(wherry|pip)$")


@dataclass
class Page:
    """Folders and files that the lines of a page created so far, relative to the reader's folder."""

    folders: set[str] = field(default_factory=set)


def problems(line: Line, page: Page) -> list[str]:
    """Return the problems of a line; record the folders that it creates."""
    try:
        commands = shell_words.parse(line.text)
    except shell_words.Unreadable as error:
        return [str(error)]
    found = []
    for command in commands:
        if command.words:
            found += _program(command.words, line.whole)
        if line.whole:
            found += _folders(command, page)
    return found


def _program(words: list[str], whole: bool) -> list[str]:
    name, *rest = words
    if name in PLAIN and rest:
        return _program([word for at, word in enumerate(rest) if at or not re.match(r"[A-Z_]+=", word)], whole)
    if name.startswith(("scripts/", "vagrant/", "tests/")):
        return _script(name, rest, whole)
    if ours := _OURS.match(name):
        name = ours[3]
    if name == "wherry":
        return _wherry(rest, whole)
    if name == "kubectl":
        return list(kubectl_help.problems(rest, whole))
    if _PYTHON.match(name):
        return _python(rest)
    if name in BUILT_IN:
        return []
    if name in ABSENT:
        return _words(name, rest, ABSENT[name])
    if not shutil.which(name, path="/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin") and name != "pytest":
        return [f"there is no program {name}"]
    return _words(name, rest, f"{_help(name)} {UNDOCUMENTED.get(name, '')}")


def _script(name: str, rest: list[str], whole: bool) -> list[str]:
    if not (ROOT / name).is_file():
        return [f"there is no script {name}"]
    if name in ("scripts/up", "scripts/join"):
        return _wherry([name.removeprefix("scripts/"), *rest], whole)
    text = (ROOT / name).read_text()
    return [
        f"{name} has no option {word}" for word in rest if word.startswith("--") and len(word) > 2 and word not in text
    ]


def _python(rest: list[str]) -> list[str]:
    if "-m" not in rest[:2]:
        return []
    at = rest.index("-m") + 1
    module, arguments = rest[at], rest[at + 1 :]
    if module in ("pip", "venv"):
        return _words("pip", arguments, _help("pip")) if module == "pip" else []
    if module == "pytest":
        paths = [word for word in arguments if word.startswith("tests/")]
        return [f"there is no {path}" for path in paths if not (ROOT / path).exists()]
    return [] if _exists(module) else [f"there is no module {module}"]


def _exists(module: str) -> bool:
    try:
        return importlib.util.find_spec(module) is not None
    except ModuleNotFoundError:  # of the package
        return False


def _wherry(words: list[str], whole: bool) -> list[str]:
    """Parse the arguments as the program does; nothing is run."""
    if words and words[0].isupper() and not whole:
        return []
    if words and words[0] in ROLES:
        return [] if len(words) == 1 or words[1].startswith("-") else [f"wherry {words[0]} takes no {words[1]}"]
    command: Any = typer.main.get_command(app)
    try:
        context = command.make_context("wherry", list(words))
        while getattr(command, "commands", None):
            rest = [*getattr(context, "_protected_args", ()), *context.args]
            name, command, rest = command.resolve_command(context, rest)
            context = command.make_context(name, list(rest), parent=context)
    except typer.Exit:
        return []
    except Exception as error:
        kinds = {each.__name__ for each in type(error).__mro__}
        if "ClickException" not in kinds:
            raise
        if not whole and ("requires an argument" in str(error) or kinds & {"NoArgsIsHelpError", "MissingParameter"}):
            return []
        return [f"wherry {' '.join(words)}: {getattr(error, 'message', error)}"]
    if context.info_name in ("kubectl", "crictl", "ctr"):
        return _program([context.info_name, *context.args], whole) if context.args else []
    path = context.command_path.removeprefix("wherry").strip()
    if not whole and path.split() == words:  # the name of a command in a sentence
        return []
    wrong = documented_values.problems(path, command.callback, dict(context.params))
    return [f"wherry {' '.join(words)}: {problem}" for problem in wrong]


@cache
def _help(name: str, *verb: str) -> str:
    """Return what a program prints as its help, in whichever way it can be asked."""
    found = ""
    for ask in (["--help", "all"] if name == "curl" else ["--help"], ["-h"], ["help"]):
        if found.count("\n") > 3:
            break
        command = [name, *verb, *ask]
        done = subprocess.run(command, input="", capture_output=True, text=True, timeout=60, check=False)
        found += done.stdout + done.stderr
    return found


def _words(name: str, rest: list[str], known: str) -> list[str]:
    """Return the options and the command that the help of a program does not have."""
    found = []
    if rest and (name in VERBS or name in ABSENT) and not rest[0].startswith("-"):
        if not _has(known, rest[0]):
            found.append(f"{name} has no command {rest[0]}")
        elif name not in ABSENT:
            known += _help(name, rest[0]) if name in ("docker", "pip", "etcdctl") else ""
    for word in rest:
        if word == "--":
            break
        option = word.partition("=")[0]
        if not option.startswith("-") or option == "-":
            continue
        letters = [] if option.startswith("--") else [f"-{letter}" for letter in option[1:]]
        if not _has(known, option) and not (letters and all(_has(known, each) for each in letters)):
            found.append(f"{name} has no option {option}")
    return found


def _has(text: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", text) is not None


def _folders(command: shell_words.Command, page: Page) -> Iterator[str]:
    """Record folders that are created; yield those that a command writes into and nothing created."""
    name, *rest = command.words or [""]
    operands = [word for word in rest if not word.startswith("-")]
    if name == "mkdir" or ((name.endswith("pip") or _PYTHON.match(name)) and "download" in rest):
        page.folders |= {word.rstrip("/") for word in operands}
    targets = [word for word in operands[-1:] if name in ("cp", "mv", "install", "ln") and word.endswith("/")]
    targets += [path.rpartition("/")[0] for path in command.writes if "/" in path]
    for target in targets:
        folder = target.rstrip("/")
        if not folder.startswith(("/", "~", "$")) and folder not in page.folders:
            yield f"{target} was not created before"
