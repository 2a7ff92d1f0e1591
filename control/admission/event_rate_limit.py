"""EventRateLimit (off by default): refuses events above a rate with 429, so that they cannot fill the store.

Each limit of the configuration is a token bucket: one for the server, or one for each namespace, user, or source and object.
The least recently used buckets are evicted above `cacheSize`. An event takes a
token from each bucket that has one, even if another bucket refuses it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Callable

from control.admission.configuration import of_kind
from control.admission.refusal import aggregate
from control.auth.fields import ConfigurationError, known, list_at
from control.interfaces.admission import Attributes, Plugin
from kube.bounded_cache import is_short
from kube.errors import too_many_requests
from kube.json_object import Object

GROUP = "eventratelimit.admission.k8s.io"
CACHE_SIZE = 4096
EVENTS = ("events", "events.events.k8s.io")


def _source_and_object(attributes: Attributes) -> str:
    event = attributes.obj or {}
    source = event.get("source") or event.get("deprecatedSource") or {}
    what = event.get("involvedObject") or event.get("regarding") or {}
    parts = [source.get(name, "") for name in ("component", "host")]
    return "".join(parts + [what.get(name, "") for name in ("kind", "namespace", "name", "uid", "apiVersion")])


KEYS: dict[str, Callable[[Attributes], str]] = {
    "Server": lambda attributes: "",
    "Namespace": lambda attributes: attributes.namespace,
    "User": lambda attributes: attributes.user.name,
    "SourceAndObject": _source_and_object,
}


class Limit:
    """The buckets of one limit: `burst` tokens each at most, `qps` of them new a second."""

    def __init__(self, entry: Object, path: str, monotonic: Callable[[], float]) -> None:
        known(entry, path, ("type", "qps", "burst", "cacheSize"))
        self.type = str(entry.get("type") or "")
        if self.type not in KEYS:
            shown = ", ".join(f'"{name}"' for name in KEYS)
            raise ConfigurationError(f'{path}.type: Unsupported value: "{self.type}": supported values: {shown}')
        self._qps, self._burst = _positive(entry, "qps", path), _positive(entry, "burst", path)
        size = entry.get("cacheSize") or 0
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise ConfigurationError(f"{path}.cacheSize: must not be negative")
        self._size, self._monotonic = (1 if self.type == "Server" else size or CACHE_SIZE), monotonic
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()
        """Key, or a long one's digest -> (tokens, when they were counted). A source may be a megabyte long."""

    def refusal(self, attributes: Attributes) -> str:
        """Take a token; return the message if there is none."""
        key, now = KEYS[self.type](attributes), self._monotonic()
        bucket = key if is_short(key) else hashlib.sha256(key.encode(errors="surrogatepass")).hexdigest()
        tokens, counted = self._buckets.pop(bucket, (float(self._burst), now))
        tokens = min(float(self._burst), tokens + (now - counted) * self._qps)
        allowed = tokens >= 1
        self._buckets[bucket] = (tokens - 1 if allowed else tokens, now)
        if len(self._buckets) > self._size:
            self._buckets.popitem(last=False)
        return "" if allowed else f"limit reached on type {self.type} for key {key}"


class EventRateLimit(Plugin):
    name = "EventRateLimit"
    targets = EVENTS

    def __init__(self, configuration: Object, monotonic: Callable[[], float]) -> None:
        settings = of_kind(configuration, GROUP, "Configuration", ("v1alpha1",))
        entries = list_at(settings, "limits", "")
        if not entries:
            raise ConfigurationError("limits: Invalid value: must not be empty")
        self.limits = [Limit(entry, f"limits[{index}]", monotonic) for index, entry in enumerate(entries)]

    def handles(self, attributes: Attributes) -> bool:
        writes = attributes.operation in ("CREATE", "UPDATE") and not attributes.dry_run
        return writes and attributes.resource.target in EVENTS

    async def validate(self, attributes: Attributes) -> None:
        refusals = [text for limit in self.limits if (text := limit.refusal(attributes))]
        if refusals:
            raise too_many_requests(f"Too many requests: {aggregate(refusals)}")


def _positive(entry: Object, name: str, path: str) -> int:
    value = entry.get(name) or 0
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        raise ConfigurationError(f"{path}.{name}: Invalid value: {value}: must be positive")
    return value
