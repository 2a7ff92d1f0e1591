"""Errors of YAML files in the words of somebody who writes them, with the line and the fix."""

from __future__ import annotations

import re

import yaml

_SENTENCES = (
    (r"'\\t'", "indent with spaces, not with tabs"),
    (
        r"mapping values are not allowed",
        "a key cannot be here: check the indentation, or quote the value that has a colon",
    ),
    (r"could not find expected ':'", "a key has no colon after it"),
    (r"unexpected end of stream", "a quotation mark is missing"),
    (r"expected ',' or '[]}]'", "a bracket is not closed, or a comma is missing"),
    (r"did not find expected node|expected the node content", "a value or a closing bracket is missing"),
    (r"expected <block end>", "this is neither a key nor an item of a list: check the indentation"),
    (r"another document", "there is a second document: write all of it in one"),
    (r"undefined alias", "an alias (*) has no anchor (&)"),
    (r"duplicate anchor", "an anchor (&) is there twice"),
    (
        r"unknown escape character",
        "a backslash in double quotes begins an escape: write it twice, or use single quotes",
    ),
    (r"cannot start any token", "a value that begins with this character needs quotes"),
    (r"could not determine a constructor", "a tag (!) has no meaning here"),
)
"""Pieces of the parser's messages, and what is said instead."""
UNKNOWN = "this is not YAML: check indentation, quotes and brackets"


class DuplicateKey(yaml.constructor.ConstructorError):
    """A mapping has a key twice; its `problem` is a sentence. Loaders that refuse such files raise it."""


def sentence(error: Exception, text: str) -> tuple[int, str]:
    """Return the line of an error, 0 if it has none, and the sentence for it."""
    if isinstance(error, RecursionError):
        return 0, "lists and mappings are nested too deeply"
    if not isinstance(error, yaml.YAMLError):  # of a scalar: no such date, a number with too many digits
        return 0, "a value is neither a number nor a date: write it in quotes"
    if isinstance(error, yaml.reader.ReaderError):
        position = error.position if isinstance(error.position, int) else 0
        return text.count("\n", 0, position) + 1, "a character is not allowed in YAML"
    mark = getattr(error, "problem_mark", None)
    if isinstance(error, DuplicateKey):
        return (mark.line + 1 if mark else 0), str(error.problem)
    said = f"{getattr(error, 'context', None) or ''} {getattr(error, 'problem', None) or ''}"
    found = next((sentence for pattern, sentence in _SENTENCES if re.search(pattern, said)), UNKNOWN)
    return (mark.line + 1 if mark else 0), found


def with_line(error: Exception, text: str) -> str:
    """Return the sentence for an error, with its line: `line 3: a bracket is not closed`."""
    line, found = sentence(error, text)
    return f"line {line}: {found}" if line else found
