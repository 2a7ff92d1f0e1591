"""A request as routes see it."""

from __future__ import annotations

from netproxy.gateway.errors import Refused
from netproxy.gateway.limits import STEPS
from netproxy.gateway.request_target import RequestTarget, parameters

Headers = list[tuple[bytes, bytes]]


class RoutedRequest:
    """The parts that conditions compare; headers and parameters are only collected when a condition is about them."""

    __slots__ = ("_fields", "_names", "_parameters", "headers", "method", "steps", "target")

    def __init__(self, method: str, target: RequestTarget, headers: Headers) -> None:
        """`headers` have names in lower case."""
        self.method, self.target, self.headers = method, target, headers
        self._fields: dict[str, str] | None = None
        self._parameters: dict[str, str] | None = None
        self._names: set[str] | None = None
        self.steps = 0
        """Steps that finding the rule has taken."""

    @property
    def fields(self) -> dict[str, str]:
        """The headers by name; the values of one that is repeated are joined (RFC 9110, 5.3)."""
        if self._fields is None:
            values: dict[str, list[str]] = {}
            for name, value in self.headers:
                values.setdefault(name.decode("latin-1"), []).append(value.decode("latin-1"))
            self._fields = {name: ", ".join(each) for name, each in values.items()}
        return self._fields

    @property
    def parameters(self) -> dict[str, str]:
        """The first value of each parameter of the query."""
        if self._parameters is None:
            self._parameters = parameters(self.target.query)
        return self._parameters

    @property
    def names(self) -> set[str]:
        """The names of the headers, behind "h", and of the parameters, behind "q"."""
        if self._names is None:
            self._names = {f"h{name}" for name in self.fields} | {f"q{name}" for name in self.parameters}
        return self._names

    def count_steps(self, count: int) -> None:
        """Count steps of about a microsecond; Refused when there have been too many."""
        self.steps += count
        if self.steps > STEPS:
            raise Refused(500, "too many routes have conditions for this request")
