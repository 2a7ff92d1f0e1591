"""Runs a coroutine step by step, from one await that suspends it to the next, and calls a function for each step.

No variable refers to an exception, or to the future that raised it, once the step that gets it has begun: the exception's
traceback refers to the variables of the frames that it passed, so both, and all that the work held, would stay in memory until
a garbage collection. `run` must drop its argument likewise.
"""

from __future__ import annotations

import asyncio
import types
from collections.abc import Callable, Coroutine, Generator
from typing import Any, TypeVar

T = TypeVar("T")

Step = Callable[[Any], Any]
"""`send` or `throw` of a coroutine."""
Wait = Callable[[], "asyncio.Future[None] | None"]
"""Returns what the next step waits for; None if it may run now."""


@types.coroutine
def stepwise(
    work: Coroutine[Any, Any, T], run: Callable[[Step, Any], Any], wait: Wait | None = None
) -> Generator[Any, Any, T]:
    """Return what `work` returns. `run(step, argument)` returns what `step(argument)` returns, for which the step waits.

    Each step waits first for what `wait` returns; one that cancels the work does not wait.
    """
    step: Step = work.send
    argument: Any = None
    awaited: Any = None
    while True:
        if wait is not None and (argument is None or isinstance(argument, Exception)):
            try:
                if (turn := wait()) is not None:
                    yield from turn
            except BaseException as error:
                step, argument = work.throw, error
        try:
            awaited = run(step, argument)
        except StopIteration as end:
            result: T = end.value
            return result
        except BaseException:
            work.close()  # a step that has not begun ends it no other way
            raise
        finally:
            argument = None
        try:
            step, argument = work.send, (yield awaited)
        except BaseException as error:
            step, argument = work.throw, error
        finally:
            awaited = None
