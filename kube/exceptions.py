"""Release of the frames and objects that tracebacks of handled exceptions refer to.

An exception refers to the frames that it passed, by its traceback, and a frame to the exception if a variable still has
it. Such a cycle keeps all variables of these frames until the next garbage collection, which may be a minute away in a
server whose objects are mostly freed by their reference counts.
"""

from __future__ import annotations


def drop_tracebacks(error: BaseException) -> None:
    """Remove the traceback of an exception that was handled and logged, and those of its causes and contexts."""
    seen: set[int] = set()
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is not None and id(each) not in seen:
            seen.add(id(each))
            each.__traceback__ = None
            left += (each.__cause__, each.__context__)
