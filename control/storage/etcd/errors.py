"""Translates gRPC statuses and etcd's error texts into the store's error classes.

etcd distinguishes a compacted revision, a future one and a few other errors by text only; all are OUT_OF_RANGE. The two
errors about revisions are raised without a revision, because only the caller knows the requested one.
"""

from __future__ import annotations

import grpc
import grpc.aio

from control.storage.etcd.words import in_words
from control.storage.store import NoSpace, StoreError, Unavailable


class RevisionCompacted(StoreError):
    """The requested revision has been compacted."""


class RevisionInFuture(StoreError):
    """The requested revision is in the future."""


class LeaseExpired(StoreError):
    """The lease for a key has expired."""


class ResponseTooLarge(Unavailable):
    """The response exceeds this client's maximum length."""


class OutcomeUnknown(Unavailable):
    """The call may have been executed; its response is lost."""


# Statuses of a member that is unreachable or has no leader: another member may answer.
_AWAY = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)


def is_transient(error: grpc.aio.AioRpcError) -> bool:
    """Return whether the same call may succeed later or at another member."""
    return _busy(error) or error.code() in _AWAY


def _busy(error: grpc.aio.AioRpcError) -> bool:
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "too many requests" in (error.details() or "")


def details(error: grpc.aio.AioRpcError) -> str:
    """Return why a call failed, in plain words if it is about the connection."""
    return in_words(error.details() or "") or error.code().name


def translate(error: grpc.aio.AioRpcError, *, unsure: bool = False) -> StoreError:
    """Return the error for a failed call; `unsure` if an earlier attempt may have taken effect."""
    text = error.details() or ""
    if error.code() is grpc.StatusCode.OUT_OF_RANGE:
        if "compacted" in text:
            return RevisionCompacted(text)
        if "future revision" in text:
            return RevisionInFuture(text)
    if error.code() is grpc.StatusCode.NOT_FOUND and "lease not found" in text:
        return LeaseExpired(text)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "space exceeded" in text and not unsure:
        return NoSpace(text)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return ResponseTooLarge(f"etcd: {text}")
    return Unavailable(f"etcd: {details(error)}")


def not_executed(error: grpc.aio.AioRpcError) -> bool:
    """Return whether a write certainly was not executed: nothing was sent, or etcd rejected it before execution."""
    unsent = error.code() is grpc.StatusCode.UNAVAILABLE and "failed to connect" in (error.details() or "")
    return unsent or _busy(error)
