"""Regular expressions that users write into definitions: RE2's, as upstream's, which no input makes slow."""

from __future__ import annotations

from typing import Any

from kube.bounded_cache import bounded_cache


class PatternError(ValueError):
    """A pattern that RE2 does not take; the message is its own."""


LONGEST = 8 * 1024
"""Characters of a pattern; RE2 takes seconds for some that are longer."""


@bounded_cache(512, longest=4096)
def compiled(pattern: str) -> Any:
    """Return a compiled pattern; raises PatternError."""
    if len(pattern) > LONGEST:
        raise PatternError(f"error parsing regexp: expression too large: `{pattern[:40]}...`")
    import re2  # 3 MB, for whom there is a pattern

    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options=options)
    except re2.error as error:
        reason = error.args[0].decode() if error.args and isinstance(error.args[0], bytes) else str(error)
        raise PatternError(f"error parsing regexp: {reason.replace(': ', ': `', 1)}`") from error


def found(pattern: str, text: str) -> bool:
    """Return whether a pattern occurs in a text (Go's MatchString: anchored only by the pattern itself)."""
    return _found(pattern, text) if len(text) <= SHORT else compiled(pattern).search(text) is not None


SHORT = 256
"""Characters up to which an answer is cached."""


@bounded_cache(4096)
def _found(pattern: str, text: str) -> bool:
    # RE2 gives up the interpreter while it searches, and may have to wait for it longer than it searched.
    return compiled(pattern).search(text) is not None
