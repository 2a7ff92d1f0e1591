"""Translates etcd's errors once at the edge: gRPC statuses and etcd's own texts into the store's error classes.

etcd tells a compacted revision, one to come and a few more apart by text alone; all are OUT_OF_RANGE. The two about
revisions are raised bare here, because only the caller knows which revision it had asked for.
"""

from __future__ import annotations

import grpc
import grpc.aio

from control.storage.store import NoSpace, StoreError, Unavailable


class RevisionGone(StoreError):
    """The revision asked for has been compacted."""


class RevisionAhead(StoreError):
    """The revision asked for has not happened yet."""


class LeaseGone(StoreError):
    """The lease that a key was to hang on has expired."""


class AnswerTooLarge(Unavailable):
    """The answer is longer than this client takes."""


class Unclear(Unavailable):
    """The call may have been carried out; its answer is lost."""


# A member that is away or has lost its leader: another one may answer.
_AWAY = frozenset(
    {
        grpc.StatusCode.UNAVAILABLE,
        grpc.StatusCode.DEADLINE_EXCEEDED,
        grpc.StatusCode.CANCELLED,
        grpc.StatusCode.UNKNOWN,
        grpc.StatusCode.INTERNAL,
    }
)


def passing(error: grpc.aio.AioRpcError) -> bool:
    """Say whether the same call may succeed a moment later, or at another member."""
    return _busy(error) or error.code() in _AWAY


def _busy(error: grpc.aio.AioRpcError) -> bool:
    return error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "too many requests" in (error.details() or "")


def translate(error: grpc.aio.AioRpcError, unsure: bool = False) -> StoreError:
    """Return what to raise for a call that failed; `unsure` where an earlier attempt may have taken effect."""
    text = error.details() or ""
    if error.code() is grpc.StatusCode.OUT_OF_RANGE:
        if "compacted" in text:
            return RevisionGone(text)
        if "future revision" in text:
            return RevisionAhead(text)
    if error.code() is grpc.StatusCode.NOT_FOUND and "lease not found" in text:
        return LeaseGone(text)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "space exceeded" in text and not unsure:
        return NoSpace(text)
    if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED and "larger than max" in text:
        return AnswerTooLarge(f"etcd: {text}")
    return Unavailable(f"etcd: {text or error.code().name}")


def never_carried_out(error: grpc.aio.AioRpcError) -> bool:
    """Say whether a write certainly did not happen: nothing was sent, or etcd refused to begin with it."""
    unsent = error.code() is grpc.StatusCode.UNAVAILABLE and "failed to connect" in (error.details() or "")
    return unsent or _busy(error)
