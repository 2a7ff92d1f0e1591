"""Removal of passwords behind options of usual commands whose names do not say so, as in `mysql -pX` and `redis-cli -a X`."""

from __future__ import annotations

import re

from wherry.named_secrets import REMOVED

_OPTIONS = {
    "redis-cli": frozenset({"-a"}),
    "sshpass": frozenset({"-p"}),
    "curl": frozenset({"-u", "--user", "-U", "--proxy-user"}),
}
"""Options by command, with the password as the next argument."""
_ATTACHED = re.compile(r"(?:mysql|mariadb)\w{0,16}")
"""Commands with `-pX`; `-p` alone prompts for it."""
_TEXT = re.compile(
    r"(\bcurl\b[^\n]{0,256}?\s(?:-u|-U|--user|--proxy-user)[\s=]{0,4}[\"']?[^\s:\"']{1,64}:"
    r"|\b(?:mysql|mariadb)\w{0,16}\b[^\n]{0,256}?\s-p"
    r"|\bsshpass\s{1,4}-p\s{0,4}"
    r"|\bredis-cli\b[^\n]{0,256}?\s-a\s{1,4})[\"']?[^\s\"']+"
)


def without_command_secrets(text: str) -> str:
    """Return a text without passwords in command lines."""
    return _TEXT.sub(rf"\1{REMOVED}", text)


def is_password(command: str, before: str, argument: str) -> bool:
    """Return whether an argument of a command, which follows another, is or contains a password."""
    name = command.rpartition("/")[2][:64]
    if before in _OPTIONS.get(name, ()):
        return True
    return argument[:2] == "-p" and len(argument) > 2 and _ATTACHED.fullmatch(name) is not None
