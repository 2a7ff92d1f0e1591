"""Work that plugins do on the whole object of a request: outside the event loop, at the user's turn, if the object is large."""

from __future__ import annotations

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import msgspec

from control.event_loop import offload
from control.event_loop.weight import LARGE, weight
from control.interfaces.admission import Attributes
from kube.json_object import Object

P = ParamSpec("P")
T = TypeVar("T")


async def run(attributes: Attributes, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Return what `work` returns, which changes nothing that others see; raises 504 as `offload.run`."""
    return await offload.run(attributes.user.name, attributes.size, work, *args, **kwargs)


async def decoded(attributes: Attributes) -> Object | None:
    """Return the object; that of a large creation is bytes until a plugin requests it."""
    return await run(attributes, lambda: attributes.obj)


async def weighed(attributes: Attributes) -> Object | None:
    """Return the object, whose weight is known then."""
    obj = await decoded(attributes)
    if obj is not None:
        weigh(attributes, obj)
    return obj


def weigh(attributes: Attributes, obj: Object) -> None:
    """Raise the weight of a request's object to that of another state of it."""
    if attributes.size < LARGE:
        attributes.size = max(attributes.size, weight(msgspec.json.encode(obj)))
