"""Removal of passwords in SQL statements, and of others in quotes that follow a word such as password without a sign.

Examples are `ALTER ROLE a WITH PASSWORD 'x'`, `CREATE USER a IDENTIFIED BY 'x'`, and `the password is "x"`. Words such as
secret and token are none of these: logs have names of objects behind them.
"""

from __future__ import annotations

import re

from wherry.named_secrets import REMOVED, end_of_words

_STATEMENT = re.compile(
    r"(?:(?<!/)(?:passw(?:or)?d|passphrase|passcode|pwd)|(?P<by>\bidentified\s{1,8}(?:with\s{1,8}\S{1,64}\s{1,8})?by))"
    r"(?:\s{1,8}(?:(?:is|was|to|by|as|using|password)\s{1,8}|for\s{1,8}[^\s=]{1,128}\s{0,8}=\s{0,8})?|(?P<call>\()\s{0,8})"
    r"(?:E|N)?(?=\\{0,15}[\"'])",
    re.IGNORECASE,
)
"""A statement up to its password; `FOR user =` is MySQL's, E and N are before some texts of PostgreSQL and others."""
_NOT_QUOTED = re.compile(r"(\bIDENTIFIED BY\s{1,8})(?!(?:VALUES|PASSWORD)\b)[^\s\"';\\]+")
"""Oracle's statement, whose password needs no quotes."""
_USER = re.compile(r"\b(?:(?:create|alter)\s{1,8}(?:user|role)|grant)\b", re.IGNORECASE)
_BEFORE = 256
"""Characters before `identified by`, which other texts have too, in which a statement about a user begins."""


def without_statement_secrets(text: str) -> str:
    """Return a text without passwords in statements."""
    kept, done, at = list[str](), 0, 0
    while match := _STATEMENT.search(text, at):
        at = match.end()
        if not _is_statement(text, match):
            continue
        kept += (text[done:at], REMOVED)
        done = at = end_of_words(text, at)
    return _NOT_QUOTED.sub(rf"\1{REMOVED}", "".join((*kept, text[done:])))


def _is_statement(text: str, match: re.Match[str]) -> bool:
    """Return whether a text is none that only looks like a statement: `x identified by "y"`, `hashPassword("x")`."""
    if match["call"]:
        return not text[match.start() - 1 : match.start()].isalpha()
    by = match["by"]
    return not by or by.isupper() or _USER.search(text, max(0, match.start() - _BEFORE), match.start()) is not None
