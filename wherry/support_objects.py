"""Items of a support bundle: the cluster's objects, as lists in JSON, and what the API server says of itself.

One request comes before all others. If the server does not answer it, or stops answering later, no more lists are requested:
each would wait for its own timeout.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec

from kube.client import Client
from kube.errors import StatusError, Unreachable
from wherry import addon_list, cluster, output, support_lists
from wherry.errors import WherryError
from wherry.redaction import redacted, without_values
from wherry.settings import Settings

PROBE_SECONDS = 10.0
"""Limit for the first request."""
SECONDS, LATER_SECONDS, MOST_LATE = 30.0, 3.0, 3
"""Limits for each list, and for each after one that took too long; after so many the server counts as away."""
MOST_BYTES = 16 << 20
"""Size of a list: a larger one ends with the last object that fits."""
PAGE = 100
Item = Callable[[], Awaitable[str]]


class ServerItems:
    """Items from the API server; `away` is why nothing more is requested, empty while it answers."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._late = 0
        self.away = ""

    async def readiness(self) -> str:
        """Return what the API server says of its readiness, and find out whether it is away; raises WherryError."""
        try:
            async with asyncio.timeout(PROBE_SECONDS), cluster.connect(self._settings) as client:
                return redacted((await client.call("GET", "/readyz", query={"verbose": ""})).decode(errors="replace"))
        except TimeoutError as error:
            self.away = f"the API server at {self._settings.server} did not answer within {PROBE_SECONDS:g} s"
            raise WherryError(self.away) from error
        except (Unreachable, WherryError) as error:
            self.away = str(error)
            raise

    def lists(self) -> dict[str, Item]:
        """Return an item for each list, by the name of its file."""
        found: dict[str, Item] = {
            f"cluster/{name}.json": self._list(path) for name, path in support_lists.paths().items()
        }
        return {**found, "cluster/addons.yaml": self._addons}

    def _list(self, path: str) -> Item:
        async def read() -> str:
            seconds = self._seconds()
            async with cluster.connect(self._settings) as client:
                return await self._answered(_listed(client, path, seconds), seconds)

        return read

    async def _addons(self) -> str:
        seconds = self._seconds()

        async def listed() -> str:
            async with asyncio.timeout(seconds), cluster.connect(self._settings) as client:
                found = await addon_list.listed(self._settings, client)
            return output.dumped(without_values([addon_list.as_data(one) for one in found]), "yaml")

        return await self._answered(listed(), seconds)

    def _seconds(self) -> float:
        """Return the limit of the next list; raises WherryError if nothing more is requested."""
        if self.away:
            raise WherryError(f"it was not requested: {self.away}")
        return LATER_SECONDS if self._late else SECONDS

    async def _answered(self, text: Awaitable[str], seconds: float) -> str:
        """Return a text, and count how often none came; raises WherryError, StatusError."""
        try:
            return await text
        except TimeoutError as error:
            self._count_late(why := f"it took more than {seconds:g} s")
            raise WherryError(why) from error
        except Unreachable as error:
            self._count_late(str(error))
            raise

    def _count_late(self, why: str) -> None:
        self._late += 1
        if self._late >= MOST_LATE:
            self.away = f"{MOST_LATE} lists were not answered, the last because {why}"


async def _listed(client: Client, path: str, seconds: float) -> str:
    """Return a list as JSON; it is read page by page, and ends with what is left out of it, if anything is."""
    found, size, head, left_out = list[str](), 0, dict[str, Any](), ""
    end, after = time.monotonic() + seconds, ""
    while not left_out and (after or not head):
        query = {"limit": str(PAGE), **({"continue": after} if after else {})}
        try:
            async with asyncio.timeout(seconds):
                body = await client.call("GET", path, query=query)
        except (TimeoutError, StatusError) as error:
            if not head:
                raise
            left_out = redacted(str(error) or f"it took more than {seconds:g} s")
            break
        head, texts, after = await asyncio.to_thread(_page, body)
        for text in texts:
            size += len(text)
            if size > MOST_BYTES:
                left_out = f"more than {MOST_BYTES >> 20} MiB"
                break
            found.append(text)
        if after and time.monotonic() > end:
            left_out = f"more than {seconds:g} s"
    whole = {**head, **({"leftOut": f"what follows {len(found)} objects: {left_out}"} if left_out else {})}
    return json.dumps(whole)[:-1] + ', "items": [\n' + ",\n".join(found) + "\n]}\n"


def _page(body: bytes) -> tuple[dict[str, Any], list[str], str]:
    """Return the fields of a list beside its objects, each object as JSON, and the token of the next page."""
    answer: Any = msgspec.json.decode(body)
    metadata = answer.get("metadata") or {}
    texts = [msgspec.json.format(msgspec.json.encode(without_values(each))).decode() for each in answer["items"]]
    head = {"kind": answer.get("kind"), "metadata": {"resourceVersion": metadata.get("resourceVersion")}}
    return head, texts, metadata.get("continue") or ""
