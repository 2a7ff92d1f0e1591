"""Removal of secrets that no name announces: input of programs, Redis's AUTH, Oracle's addresses, codes of URLs.

Programs that read a password from their input get it by a pipe or a here-string (`echo X | docker login --password-stdin`),
those that read it from a file by a substitution (`private-key <(echo X)`). The texts before and behind such a program are read
up to `_DISTANCE` characters, so the time is in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from wherry.named_secrets import NAMES, REMOVED, end_of_words

_DISTANCE = 256
"""Characters between the parts of a command."""
_END = r"(?=[ \t]{0,8}(?:$|[\"'`|;&]|\\{1,15}[nr\"']))"
_OPERAND = r"[^\s\"'`|;&\\]+"
_PATTERNS = tuple(
    (re.compile(pattern, re.MULTILINE), rf"\1{REMOVED}")
    for pattern in (
        r"((?:[?&]|&amp;|u0026)code=)(?=[^&\s\"'\\]{0,64}?[0-9])[\w%./~+-]{10,}",  # OAuth 2.0
        r"((?<![\w/:.@$#-])[\w$#.-]{1,128}/)[^\s\"'/@]{1,128}(?=@(?://)?[\w.-]{1,253}:[0-9]{1,5}/\w)",  # Oracle
        rf"(\b(?:echo|printf)\s{{1,8}}\\{{0,15}}[\"']?AUTH[ \t]{{1,8}})[\"']?{_OPERAND}(?:[ \t]{{1,8}}{_OPERAND})?",  # Redis
        rf"(<<<\s{{0,8}}\\{{0,15}}[\"']AUTH[ \t]{{1,8}}){_OPERAND}(?:[ \t]{{1,8}}{_OPERAND})?",
        rf"((?:^|[\"'`]|\\n)AUTH[ \t]{{1,8}})(?=[^\"'`|;\\\n]{{0,64}}?[0-9]){_OPERAND}(?:[ \t]{{1,8}}{_OPERAND})?{_END}",
        r"((?:^|[\"'`;&|][ \t]{0,8}|\bsudo[ \t]{1,8})(?:/usr/bin/)?passwd[ \t]{1,8})(?!-|[a-z_-]{1,64}(?![^\s\"'`;&|\\]))"
        rf"{_OPERAND}{_END}",
    )
)
"""The last two are for other texts, too: Redis's passwords have a digit there, the names of users have only small letters."""
_READER = re.compile(
    r"--(?:pass(?:word|phrase|wd)?|token|secret)-(?:on-)?stdin\b|--with-token\b|--passphrase-fd\b|\bcryptsetup\b"
    r"|\bsudo\s{1,8}-S\b|\b(?:ch|vnc)passwd\b|\b(?:smb|ht)?passwd\s{1,8}-(?:-stdin|[a-z]{0,4}[is])\b"
)
"""Words of the command line of a program that reads a password from its input."""
_COMMAND = re.compile(r"\s*(?:[^\n;&|\\]|\\.)*+", re.DOTALL)
_WRITER = re.compile(r"(?<![\w./-])(?:echo|printf)(?:\s{1,8}-[neE]{1,3})?\s{1,8}")
_OTHER_COMMAND = re.compile(r"\"[^\"]*\"?|'[^']*'?|(?P<end>;|&&|\n)")
_HERE = re.compile(r"[^\n;|&<]{0,256}<<<[ \t]{0,8}")
_SUBSTITUTION = re.compile(r"<\(\s{0,8}(?:echo|printf)\s{1,8}(?P<value>[^)\n]{1,512})")
_NAME = re.compile(NAMES, re.IGNORECASE)


def without_unnamed_secrets(text: str) -> str:
    """Return a text without secrets that are known by their place alone."""
    for pattern, replacement in _PATTERNS:
        text = pattern.sub(replacement, text)
    for places in (_inputs, _substitutions):
        kept, done = list[str](), 0
        for start, end in places(text):
            if end > start >= done:
                kept += (text[done:start], REMOVED)
                done = end
        text = "".join((*kept, text[done:]))
    return text


def _inputs(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the passwords begin and end that programs read from their input."""
    done = 0
    for reader in _READER.finditer(text):
        if found := _piped(text, done, reader.start()):
            yield found
            done = found[1]
        if here := _HERE.match(text, reader.end()):
            done = end_of_words(text, here.end())
            yield here.end(), done


def _piped(text: str, done: int, at: int) -> tuple[int, int] | None:
    """Return where the argument of the `echo` or `printf` begins and ends that is the input of a command with a word."""
    pipe = text.rfind("|", max(done, at - _DISTANCE), at)
    if pipe < 0 or not _COMMAND.fullmatch(text, pipe + 1, at):
        return None
    begin = max(done, pipe - _DISTANCE)
    writer = next(_writers(text, begin, pipe), None)
    if writer is None or any(part["end"] for part in _OTHER_COMMAND.finditer(text, writer.end(), pipe)):
        return None
    end = writer.end() + len(text[writer.end() : pipe].rstrip())
    return (writer.end(), end) if end > writer.end() else None


def _writers(text: str, begin: int, end: int) -> Iterator[re.Match[str]]:
    """Yield the commands that write their arguments, the last first."""
    for name in ("echo", "printf"):
        at = end
        while (at := text.rfind(name, begin, at)) >= 0:
            if found := _WRITER.match(text, at, end):
                yield found


def _substitutions(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the contents of files begin and end that a shell makes of a command's output behind the name of a secret."""
    for found in _SUBSTITUTION.finditer(text):
        name = text[max(0, found.start() - _DISTANCE) : found.start()].rstrip(" \t=").rpartition(" ")[2]
        if _NAME.search(name):
            yield found.span("value")
