"""Label selectors of stored objects, compiled once for each generation of their object.

Evictions and admission compare with them at each request, and compiling one of 1 MiB takes a second, outside of the event
loop. The least recently used are evicted above a number and a size; a new generation replaces the old one.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import msgspec

from control.event_loop import offload
from kube import bounded_cache
from kube.selectors import LabelSelector, from_label_selector

MOST, MOST_BYTES = 4096, 4 << 20
"""Maximum number of cached selectors, and bytes of their JSON. Compiled they need several times as much."""
_Place = tuple[str, str]
"""The UID of an object, and the field of a selector in it."""
_Kept = tuple[int, LabelSelector, int]
"""The generation of the object, its selector, and the bytes of that as JSON."""


class CompiledSelectors:
    """Cache of compiled selectors. The event loop and the thread for large objects use it."""

    def __init__(self) -> None:
        self._kept: OrderedDict[_Place, _Kept] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    async def of(
        self, user: str, metadata: dict[str, Any], place: str, read: Callable[[], Any], size: int | None = None
    ) -> LabelSelector:
        """Return the compiled selector in a field of an object; `read` returns the selector's JSON form.

        Compiling it processes `size` bytes. Raises SelectorError.
        """
        key, generation = (metadata.get("uid") or "", place), metadata.get("generation") or 0
        found = self._known(key, generation)
        if found is None:
            size = len(msgspec.json.encode(read())) if size is None else size
            found = await offload.run(user, size, self._compiled, key, generation, read)
        return found

    def forget(self) -> None:
        """Drop all selectors."""
        with self._lock:
            self._kept.clear()
            self._bytes = 0

    def _known(self, key: _Place, generation: int) -> LabelSelector | None:
        with self._lock:
            found = self._kept.get(key)
            if found is None or found[0] != generation:
                return None
            self._kept.move_to_end(key)
            return found[1]

    def _compiled(self, key: _Place, generation: int, read: Callable[[], Any]) -> LabelSelector:
        known = self._known(key, generation)  # another request may have waited for the same
        if known is not None:
            return known
        source = read()
        selector = from_label_selector(source)
        selector.matches({})  # one of many terms is made ready when it is first compared
        if key[0]:
            self._keep(key, (generation, selector, len(msgspec.json.encode(source))))
        return selector

    def _keep(self, key: _Place, new: _Kept) -> None:
        with self._lock:
            before = self._kept.pop(key, None)
            self._bytes += new[2] - (before[2] if before is not None else 0)
            self._kept[key] = new
            while len(self._kept) > MOST or (self._bytes > MOST_BYTES and len(self._kept) > 1):
                self._bytes -= self._kept.popitem(last=False)[1][2]


kept = CompiledSelectors()
bounded_cache.on_forget(kept.forget)
