"""Common setup of all daemons: the limit of file descriptors is raised, long steps are limited, free memory is released."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine
from typing import Any, ParamSpec

from kube.serving.limits import raise_descriptor_limit
from kube.serving.memory import give_back
from kube.step_limit import sampling

P = ParamSpec("P")


def daemon(run: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Coroutine[Any, Any, None]]:
    """Return a daemon's main function with that set up before it, and free memory given back beside it."""

    @functools.wraps(run)
    async def running(*args: P.args, **kwargs: P.kwargs) -> None:
        raise_descriptor_limit()
        giving = asyncio.create_task(give_back(), name="giving memory back")
        try:
            with sampling():
                await run(*args, **kwargs)
        finally:
            giving.cancel()
            await asyncio.gather(giving, return_exceptions=True)

    return running
