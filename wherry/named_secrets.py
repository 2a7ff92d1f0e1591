"""Removal of values behind names such as password, in the notations of logs, JSON, YAML, shells and configuration files.

A value ends where its notation says: a quoted one at its quote, with as many backslashes before it as at its beginning (JSON in
a string of JSON has one, in that again three), a block or list of YAML with its indentation, a word at a blank. If in doubt, it
ends with the line. Each value is read once, and each name costs a bounded look around it, so the time is in proportion to the
text.
"""

from __future__ import annotations

import re

REMOVED = "<removed>"
NAMES = (
    r"(?:passw(?:or)?d|passphrase|passcode|pwd|token|secret|credential|client-key-data|authorization|cookie"
    r"|(?:api|access|account|auth|private|shared|signing|encryption|enc|master|certificate|jwt|hmac|app|license|ssh|gpg)[_-]?key"
    r"|(?:(?<![a-z!+:-])|(?<=--))(?:wpa[_-])?psk(?![\w-])"
    r"|(?<![a-z])(?:db|root|user|smtp|bind|require|master|admin)?(?:pass|pw)(?![a-z])|(?<![a-z])masterauth(?![a-z])"
    r"|(?<![a-z])creds(?![a-z])|basic[_-]?auth(?![a-z]))"
)
_NAME = re.compile(rf"({NAMES})[\w.-]{{0,64}}", re.IGNORECASE)
_SEPARATOR = re.compile(
    r"(?P<quote>\\{0,15}[\"'])?(?:\s{0,8}(?P<sign>:|=>|->|(?<=-)>|=|%3D)| {0,8}[\t\xa0])", re.IGNORECASE
)
"""Without a sign it is a tab or a space that does not break: in lists of names and values."""
_NAMED_VALUE = re.compile(
    r"\\{0,15}[\"']?(?:\s{0,8},\s{0,8}|\s{1,64})\\{0,15}[\"']?value\\{0,15}[\"']?\s{0,8}[:=][ \t]{0,8}", re.IGNORECASE
)
"""Between the name and the value of an entry such as a variable: `"name":"DB_PASSWORD","value":"..."`, also as YAML."""
_VALUE_BEFORE = re.compile(
    r"(?s:.*)(?:^|[{,\s\\-])\\{0,15}[\"']?value\\{0,15}[\"']?\s{0,8}[:=][ \t]{0,8}(?P<value>\S.*?)"
    r"(?:\s{0,8},\s{0,8}|\s{1,64})\\{0,15}[\"']?name\\{0,15}[\"']?\s{0,8}[:=]\s{0,8}\\{0,15}[\"']?[\w.-]{0,64}\Z",
    re.IGNORECASE,
)
"""The same with the value first: `"value":"...","name":"DB_PASSWORD"`, up to the name."""
_BEFORE = 256
"""Characters before a name in which its value is searched."""
_NAME_KEY = re.compile(r"name\\{0,15}[\"']?\s{0,8}[:=]\s{0,8}\\{0,15}[\"']?[\w.-]{0,64}\Z", re.IGNORECASE)
_SPACES, _BLANKS, _INDENT = re.compile(r"\s{0,8}"), re.compile(r"[ \t]{0,8}"), re.compile(r"[ \t]*")
_QUOTE = re.compile(r"(\\{0,15})([\"'`])")
_PARTS = {quote: re.compile(rf"\\+|{quote}|\n") for quote in "\"'`"}
_BLOCK = re.compile(r"[ \t]{0,8}([|>][-+0-9]{0,3}|[\[{])?[ \t]{0,64}(?:#[^\n]{0,200})?\n")
_EMPTY = re.compile(r"\[\]|\{\}|(?:true|false|null)\b")
_SCALAR = re.compile(r"[^\s,}\]\\\"']+")
_WORD = re.compile(r"[^\s\"'`&,;\\$]+|\$(?:\([^)\n]*\)?)?|\\[ \t]|\\(?![\"'])|[,;](?=[^\s\"'\\{\[])(?![\w.-]{1,64}=)")
_ARGUMENT = re.compile(r"(?:[^\s\"'`\\]|\\[ \t]?)++")
_KEY = re.compile(r"[\"']?[\w./-]{1,128}[\"']?:(?:\s|$)", re.MULTILINE)
"""Key of a mapping of YAML."""
_AFTER_QUOTE = re.compile(r"[\w$%@!#*+/~^.-]|[\"'`]")
_QUOTED_QUOTE = re.compile(r"\\{1,15}'(?=')")
"""A quote between two parts in quotes, as a shell's users write one in such a part: `'a'\\''b'`."""
_FLAG = re.compile(r"(?:^|[^\w-])--?[\w-]*\Z")
_LINE = re.compile(r"[^\n]*")
_AUTH = re.compile(
    r"((?<![A-Za-z0-9])auth\\{0,15}[\"']?\s{0,8}[:=]\s{0,8}\\{0,15}[\"']?)[A-Za-z0-9+/_-]{8,}={0,2}", re.IGNORECASE
)
"""Name and password in base64, as in Docker's and containerd's configuration."""


def without_named_secrets(text: str) -> str:
    """Return a text without the values behind names of secrets."""
    kept: list[str] = []
    done = at = 0
    while match := _NAME.search(text, at):
        if before := _value_before(text, done, match.start()):
            kept += (text[done : before[0]], REMOVED)
            done = before[1]
        start, end = _value(text, match.start(), match.end())
        if end > start:
            kept += (text[done:start], REMOVED)
            done = at = end
        else:
            at = match.end(1)
    return _AUTH.sub(rf"\1{REMOVED}", "".join((*kept, text[done:])))


def _value_before(text: str, done: int, name: int) -> tuple[int, int] | None:
    """Return where the value of an entry that ends with a name begins and ends."""
    begin = max(done, name - _BEFORE)
    before = text[begin:name]
    if "value" not in before.lower() or not _NAME_KEY.search(before, max(0, len(before) - 96)):
        return None
    found = _VALUE_BEFORE.match(before)
    return None if found is None else (begin + found.start("value"), begin + found.end("value"))


def _value(text: str, name: int, end: int) -> tuple[int, int]:
    """Return where the value behind a name begins and ends, the same place twice if there is none."""
    separator, flag = _SEPARATOR.match(text, end), _FLAG.search(text[max(0, name - 64) : name])
    word = _ARGUMENT if flag else _WORD
    if (separator is None or not separator["sign"]) and (named := _NAMED_VALUE.match(text, end)):
        start = named.end()
        if _QUOTE.match(text, start):
            return start, end_of_words(text, start, word)
        if block := _BLOCK.match(text, start):
            return block.end(), _end_of_block(text, named.start() + 1, block.end(), items=False)
        return start, _skip(_SCALAR if "," in named[0] else _LINE, text, start)
    if separator is None:
        start = _skip(_BLANKS, text, end) if flag else end
        return start, end_of_words(text, start, word) if start > end else end
    after = separator.end()
    start = _skip(_SPACES, text, after)
    if _QUOTE.match(text, start):
        return start, end_of_words(text, start, word)
    if block := _BLOCK.match(text, after):
        return block.end(), _end_of_block(text, name, block.end(), items=block[1] is None)
    start = _skip(_BLANKS, text, after)
    if _EMPTY.match(text, start) and (separator["quote"] or text[start] in "[{"):
        return start, start
    if text.startswith(("[", "{"), start):
        return start, _skip(_LINE, text, start)
    if separator["sign"] != ":":
        return start, end_of_words(text, start, word)
    return start, _skip(_SCALAR if separator["quote"] else _LINE, text, start)


def _skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    match = pattern.match(text, at)
    return match.end() if match else at


def end_of_words(text: str, at: int, words: re.Pattern[str] = _WORD) -> int:
    """Return the end of a word, in which quoted parts may follow each other as for a shell."""
    while True:
        if quote := _QUOTE.match(text, at):
            at = _end_of_quoted(text, quote)
            if quote[2] == "'" and (between := _QUOTED_QUOTE.match(text, at)):
                at = between.end()
            elif not _AFTER_QUOTE.match(text, at):
                return at
        elif word := words.match(text, at):
            at = word.end()
        else:
            return at


def _end_of_quoted(text: str, quote: re.Match[str]) -> int:
    """Return where the quoted part ends, with the line if it has no end."""
    depth, run, run_end = len(quote[1]), 0, -1
    for part in _PARTS[quote[2]].finditer(text, quote.end()):
        if part[0] == "\n":
            return part.start()
        if part[0][0] == "\\":
            run, run_end = len(part[0]), part.end()
            continue
        before = run if run_end == part.start() else 0
        # A quote within the value has one backslash more at the innermost level: 1, 3, 7 for those of the depths 0, 1, 3.
        if before % (2 * depth + 2) != 2 * depth + 1:
            return part.end()
    return len(text)


def _end_of_block(text: str, name: int, at: int, *, items: bool) -> int:
    """Return the end of the lines that are indented below a name's line.

    `items`: a list's, also beside it, or a value's; not a mapping's.
    """
    line = text.rfind("\n", 0, name) + 1
    indent, end, first = _skip(_INDENT, text, line) - line, at, True
    while at < len(text):
        begin, line_end = _skip(_INDENT, text, at), _skip(_LINE, text, at)
        if begin < line_end:
            depth = begin - at
            item = items and depth >= indent and text.startswith(("- ", "-\n"), begin)
            if not item and (depth <= indent or (items and first and _KEY.match(text, begin))):
                break
            end, first = line_end, False
        at = line_end + 1
    return end
