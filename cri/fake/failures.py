"""Failure injection: the next calls of an rpc fail, or take time, as configured by a test."""

from dataclasses import dataclass, field

import grpc


class RPCError(Exception):
    """Answer the call with this status."""

    def __init__(self, code: grpc.StatusCode, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


@dataclass(slots=True)
class Failures:
    """Next failures, by rpc name."""

    _errors: dict[str, list[RPCError]] = field(default_factory=dict)
    _delays: dict[str, float] = field(default_factory=dict)

    def fail(self, rpc: str, message: str, code: grpc.StatusCode = grpc.StatusCode.UNKNOWN, times: int = 1) -> None:
        """Let the next `times` calls of an rpc, as "RunPodSandbox", fail."""
        self._errors.setdefault(rpc, []).extend([RPCError(code, message)] * times)

    def delay(self, rpc: str, seconds: float) -> None:
        """Let every call of an rpc take so long, from now on; 0 ends it."""
        self._delays[rpc] = seconds

    def seconds(self, rpc: str) -> float:
        """Return how long to hold a call."""
        return self._delays.get(rpc, 0.0)

    def take(self, rpc: str) -> RPCError | None:
        """Return the failure due for this call, if any, and count it."""
        waiting = self._errors.get(rpc)
        return waiting.pop(0) if waiting else None
