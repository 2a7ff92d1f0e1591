"""Words of a line as bash completes it: it breaks them at `:` and `=` too, as in names of images and `--option=value`.

The parts are joined again for the completion. bash replaces only what follows the last break of the word, so the beginning
that it keeps is taken off the values.
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator, MutableMapping

WORDS, NUMBER = "COMP_WORDS", "COMP_CWORD"
BREAKS = (":", "=")


def joined(words: list[str], number: int) -> tuple[list[str], int, str]:
    """Return the words without breaks, the number of the incomplete one, and the beginning of it that bash keeps."""
    found: list[str] = []
    chosen, kept, glue = 0, "", False
    for at, word in enumerate(words[: number + 1]):
        is_break = bool(word) and not word.strip("".join(BREAKS))
        if found and word and at > 1 and (is_break or glue):
            before = found[-1]
            found[-1] = before + word
            kept = found[-1] if is_break else before
        else:
            found.append(word)
            kept = ""
        glue, chosen = is_break, len(found) - 1
    return found, chosen, kept


@contextlib.contextmanager
def adapted(environment: MutableMapping[str, str]) -> Iterator[None]:
    """Join the words that bash has put into the environment, and take the beginning that it keeps off the printed values."""
    try:
        # One a line, and an empty one at the end of the line is the incomplete one.
        words, number = environment[WORDS].split("\n"), int(environment[NUMBER])
    except (KeyError, ValueError):
        yield
        return
    words += [""] * (number + 1 - len(words))
    found, chosen, kept = joined(words, number)
    environment[WORDS], environment[NUMBER] = "\n".join(found), str(chosen)
    printed = io.StringIO()
    try:
        with contextlib.redirect_stdout(printed):
            yield
    finally:
        for line in printed.getvalue().splitlines():
            print(line.removeprefix(kept))
