"""Removal of passwords in command lines of usual programs whose options do not say so, as in `mysql -pX` and `redis-cli -a X`.

The same rules read texts and lists of arguments: a text word by word from the name of a program to the end of the command, a
list from its first argument to its last. Each word is read once, so the time is in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from wherry.named_secrets import NAMES, REMOVED
from wherry.password_options import PROGRAM_NAME, Program, find

_NAME = re.compile(rf"(?<![\w.-])(?P<name>{PROGRAM_NAME})(?![\w.-]|://)(?:\\{{0,15}}[\"'`])?")
"""A program's name, with the quote behind it if it is in quotes."""
_LINE_END = re.compile(r"(?<!\\)\n")
_LONGEST = 1024
"""Characters of a text behind a program's name that may be its command line."""
_WORD = re.compile(
    r"[\s,\[\]]*(?P<option>--?\w[\w-]{0,63}=?)?"
    r"(?:(?P<quote>\\{0,15}[\"'`])(?P<quoted>.{0,512}?)(?P=quote)|(?P<plain>[^\s\"'`]*))",
    re.DOTALL,
)
_ENDS = frozenset({"|", "||", "&", "&&", ";"})
_NAMED = re.compile(rf"[\w.-]{{0,64}}?{NAMES}[\w.-]{{0,64}}", re.IGNORECASE)
_FLAG = re.compile(rf"--?[\w-]*{NAMES}[\w-]*", re.IGNORECASE)
_SIGNS = (":", "=", "=>")
_PASSWD, _USER_NAME = ("passwd", "/usr/bin/passwd"), re.compile(r"[a-z_-]{1,64}")


def without_command_secrets(text: str) -> str:
    """Return a text without passwords in command lines."""
    kept: list[str] = []
    done = at = 0
    while name := _NAME.search(text, at):
        line_end = _LINE_END.search(text, name.end(), name.end() + _LONGEST)
        limit = line_end.start() if line_end else min(len(text), name.end() + _LONGEST)
        at, reader = name.end(), _Reader()
        reader.start(name["name"])
        while at < limit and reader.reads and (word := _WORD.match(text, at, limit)):
            at = max(word.end(), at + 1)
            if span := reader.span(word):
                kept += (text[done : span[0]], REMOVED)
                done = span[1]
    return "".join((*kept, text[done:]))


def secret_arguments(arguments: Sequence[object]) -> Iterator[int]:
    """Yield the indices of arguments that are or contain passwords, behind flags and names that say so or of known programs."""
    if len(arguments) == 2 and arguments[0] in _PASSWD and not _USER_NAME.fullmatch(str(arguments[1])):
        yield 1
    reader, before, named = _Reader(), "", False
    for index, argument in enumerate(arguments):
        if not isinstance(argument, str):
            reader, before, named = _Reader(), "", False
            continue
        is_sign = argument in _SIGNS
        if reader.secret(argument) is not None or (not is_sign and (named or _FLAG.fullmatch(before))):
            yield index
        named = _NAMED.fullmatch(before) is not None if is_sign else _names_next(argument)
        before = argument[:256]


def _names_next(argument: str) -> bool:
    """Return whether an argument is a name such as `Cookie:` or `password=`, whose value is the next."""
    return argument[-1:] in _SIGNS and len(argument) <= 256 and _NAMED.fullmatch(argument.rstrip(":= ")) is not None


class _Reader:
    """Reads the words of a command line one after the other."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._before: str | None = None
        """The sign before the password in the next word, "" for none; None if that has no password."""
        self._ready = False
        self._operands = self._following = 0

    @property
    def reads(self) -> bool:
        return self._program is not None

    def start(self, name: str) -> bool:
        """Return whether a word is a program's name, whose arguments follow."""
        program = find(name[-256:].rpartition("/")[2])
        if program is not None:
            self._program, self._ready, self._operands, self._following = program, not program.after, 0, 0
        return program is not None

    def span(self, word: re.Match[str]) -> tuple[int, int] | None:
        """Return where the password in a word of a text begins and ends."""
        option, group = word["option"] or "", "plain" if word["quote"] is None else "quoted"
        if not (option + word[group]).strip("\\,[]"):
            return None
        at = self.secret(option + word[group])
        if at is None:
            return None
        return (word.start("option") + at if at < len(option) else word.start(group) + at - len(option)), word.end(
            group
        )

    def secret(self, word: str) -> int | None:
        """Return where the password in the next word begins; None if it has none."""
        before, self._before = self._before, None
        if before is not None:
            return _start(word, before)
        if self.start(word) or self._program is None:
            return None
        if word in _ENDS:
            self._program = None
            return None
        if word[:1] == "-" and len(word) > 1:
            return self._option(self._program, word) if self._ready else None
        return self._operand(self._program, word)

    def _option(self, program: Program, word: str) -> int | None:
        head, sign, value = word.partition("=")
        if sign and head in program.options:
            return _start(value, program.options[head], len(head) + 1)
        end = len(word) if word in program.options else 0
        if not end and word[1] != "-" and program.joined:
            letter = len(word) - len(word[1:].lstrip(program.switches))
            end = letter + 1 if f"-{word[letter : letter + 1]}" in program.options else 0
            head = f"-{word[letter : letter + 1]}"
        if not end:
            return None
        if end < len(word):
            return _start(word[end:], program.options[head], end)
        self._before = program.options[head] if program.separate else None
        return None

    def _operand(self, program: Program, word: str) -> int | None:
        if not self._ready:
            self._ready = word in program.after
            return None
        if self._following:
            self._following -= 1
            return 0
        if word in program.words:
            self._before, self._following = "", program.words[word] - 1
            return None
        self._operands += 1
        return 0 if self._operands in program.operands else None


def _start(value: str, before: str, offset: int = 0) -> int | None:
    """Return where the password in a value begins, or None."""
    at = value.find(before)
    return None if at < 0 else offset + at + len(before)
