"""Common setup of all daemons: the limit of file descriptors is raised, long steps are limited, free memory is released."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, ParamSpec

from kube.serving.garbage import collect
from kube.serving.limits import raise_descriptor_limit
from kube.serving.memory import give_back
from kube.step_limit import sampling

P = ParamSpec("P")


def daemon(run: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Coroutine[Any, Any, None]]:
    """Return a daemon's main function with that set up before it, and free memory given back beside it."""
    return _with_tasks(run, {"giving memory back": give_back})


def node_daemon(run: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, Coroutine[Any, Any, None]]:
    """Return the same for a daemon of a node, with garbage collections: it has few objects, and many in cycles."""
    return _with_tasks(run, {"giving memory back": give_back, "collecting garbage": collect})


def _with_tasks(
    run: Callable[P, Coroutine[Any, Any, None]], works: Mapping[str, Callable[[], Coroutine[Any, Any, None]]]
) -> Callable[P, Coroutine[Any, Any, None]]:
    @functools.wraps(run)
    async def running(*args: P.args, **kwargs: P.kwargs) -> None:
        raise_descriptor_limit()
        tasks = [asyncio.create_task(work(), name=name) for name, work in works.items()]
        try:
            with sampling():
                await run(*args, **kwargs)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return running
