"""Errors of runtime calls: gRPC statuses, translated once at the edge.

A caller that only wants to know that the call failed catches `CRIError`; the subclasses are the cases
that callers act on. `str(error)` is the runtime's own message, which ends up in events and conditions,
so nothing is added to it; of a long one it is the beginning (texts.py).
"""

import grpc
import grpc.aio

from cri.texts import shortened


class CRIError(Exception):
    """A call to the container runtime failed."""

    def __init__(self, message: str, *, code: str = "UNKNOWN", method: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.code = code  # the gRPC status's name, as NOT_FOUND
        self.method = method  # the rpc's name, as RunPodSandbox

    def grpc_text(self) -> str:
        """Write the error as grpc-go prints it, which is how upstream's events and conditions show it."""
        return f"rpc error: code = {_GO_NAMES.get(self.code, 'Unknown')} desc = {self.message}"

    @property
    def final(self) -> bool:
        """Return whether the call's work has ended; after other errors it may still be under way, and succeed."""
        return self.code not in _UNDER_WAY


class NotFoundError(CRIError):
    """The sandbox, container or image does not exist."""


class AlreadyExistsError(CRIError):
    """The name (pod name, namespace, UID and attempt, or container name and attempt) is taken."""


class InvalidArgumentError(CRIError):
    """The runtime refuses the configuration; trying again with the same one is in vain."""


class UnavailableError(CRIError):
    """The runtime cannot be reached or is going away; the call may or may not have taken effect."""


class DeadlineExceededError(CRIError):
    """The call's deadline passed, or for exec_sync, the command ran longer than its timeout."""


class UnimplementedError(CRIError):
    """This runtime does not know the call."""


class UnauthenticatedError(CRIError):
    """A registry refused the credentials."""


class MessageTooLargeError(CRIError):
    """A list of the runtime is larger than a gRPC message may be, on its side or ours."""


class IncompleteAnswerError(CRIError):
    """The runtime began to answer, and the answer did not come in time."""


_TOO_LARGE = "larger than max"
"""Part of gRPC's message for it, in Go and here; RESOURCE_EXHAUSTED has other meanings, too."""

_CLASSES: dict[grpc.StatusCode, type[CRIError]] = {
    grpc.StatusCode.NOT_FOUND: NotFoundError,
    grpc.StatusCode.ALREADY_EXISTS: AlreadyExistsError,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgumentError,
    grpc.StatusCode.UNAVAILABLE: UnavailableError,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceededError,
    grpc.StatusCode.UNIMPLEMENTED: UnimplementedError,
    grpc.StatusCode.UNAUTHENTICATED: UnauthenticatedError,
    grpc.StatusCode.PERMISSION_DENIED: UnauthenticatedError,
}

# What containerd says, with an unknown status, while it reads its containers back after a restart.
_LOADING = "server is not initialized yet"

_UNDER_WAY = frozenset({"CANCELLED", "DEADLINE_EXCEEDED", "UNAVAILABLE", "RESOURCE_EXHAUSTED", "ABORTED"})
_GO_NAMES = {
    "CANCELLED": "Canceled",
    "UNKNOWN": "Unknown",
    "INVALID_ARGUMENT": "InvalidArgument",
    "DEADLINE_EXCEEDED": "DeadlineExceeded",
    "NOT_FOUND": "NotFound",
    "ALREADY_EXISTS": "AlreadyExists",
    "PERMISSION_DENIED": "PermissionDenied",
    "RESOURCE_EXHAUSTED": "ResourceExhausted",
    "FAILED_PRECONDITION": "FailedPrecondition",
    "ABORTED": "Aborted",
    "OUT_OF_RANGE": "OutOfRange",
    "UNIMPLEMENTED": "Unimplemented",
    "INTERNAL": "Internal",
    "UNAVAILABLE": "Unavailable",
    "DATA_LOSS": "DataLoss",
    "UNAUTHENTICATED": "Unauthenticated",
}


def translate(error: grpc.aio.AioRpcError, method: str) -> CRIError:
    """Turn a gRPC failure into the class callers catch."""
    code, details = error.code(), shortened(error.details() or "")
    if details == _LOADING:
        code = grpc.StatusCode.UNAVAILABLE
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED and _TOO_LARGE in details:
        return MessageTooLargeError(details, code=code.name, method=method)
    return _CLASSES.get(code, CRIError)(details or code.name, code=code.name, method=method)
