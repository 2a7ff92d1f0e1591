"""The last step of a write: bytes into the store, and the cache caught up before the writer continues."""

from __future__ import annotations

import logging

from control.registry.registry import Registry
from control.registry.served import served
from control.storage import codec
from control.storage.listing import revision_too_large
from control.storage.store import FutureRevision, Item, NoSpace, StoreError, Unavailable
from kube import errors
from kube.errors import FieldError, StatusError
from kube.json_object import Object
from kube.nesting import DEEPEST, is_deep
from kube.resources import Resource

log = logging.getLogger(__name__)
LARGEST_OBJECT = 1536 * 1024


def encode(obj: Object) -> bytes:
    """Return the bytes to store; refuses what is too large, or deeper than what may be read again.

    Managed fields nest four levels deeper than what they describe, and plugins of admission may nest more than the body did.
    """
    value = limited(codec.encode(obj))
    if is_deep(value):
        raise errors.bad_request(f"the object nests more than {DEEPEST} levels deep, with its managedFields")
    return value


def limited(value: bytes) -> bytes:
    """Refuse an object that is too large to be stored, as upstream does on behalf of etcd."""
    if len(value) > LARGEST_OBJECT:
        raise object_too_large()
    return value


def object_too_large() -> StatusError:
    """Return the error for an object that is larger than LARGEST_OBJECT bytes."""
    return StatusError(500, "", "etcdserver: request is too large")


async def wait_until_cached(registry: Registry, item: Item) -> Item:
    """Wait until the cache shows a write, so that its writer reads it."""
    try:
        await registry.cache.wait_fresh(item.revision)
    except FutureRevision:
        log.warning("the watch cache lags behind revision %d", item.revision)
    return item


def storage_error(error: StoreError) -> StatusError:
    """Translate an error of the store to the client's Status."""
    if isinstance(error, Unavailable):
        return StatusError(500, "InternalError", f"Internal error occurred: {error}")
    if isinstance(error, NoSpace):
        return StatusError(500, "", str(error))  # what upstream makes of etcd's alarm NOSPACE
    if isinstance(error, FutureRevision):
        return revision_too_large(error.revision, error.current)  # the cache is behind: 504, and to be retried
    return errors.internal(str(error))


def merge_problems(problems: list[FieldError], more: list[FieldError]) -> None:
    """Add a strategy's findings to the metadata's, each only once."""
    seen = {_identity(problem) for problem in problems}
    for problem in more:
        identity = _identity(problem)
        if identity not in seen:
            seen.add(identity)
            problems.append(problem)


def _identity(problem: FieldError) -> tuple[object, ...]:
    value = problem.value
    # Of a list or object, whether it is the very same: a client chooses how large it is, and how many problems it has.
    same = value if value is None or isinstance(value, str | int | float) else id(value)
    return problem.path, problem.type, problem.detail, type(value), same


def always_status(resource: Resource, obj: Object) -> None:
    """Give an object its empty status where it has none."""
    if "status" not in obj and served(resource).writes_status:
        obj["status"] = {}
