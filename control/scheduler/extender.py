"""Extenders: processes that filter, score, select victims or bind, called over HTTP.

The messages are those of k8s.io/kube-scheduler/extender/v1, whose fields have Go's own names (Pod, Nodes, NodeNames). The
field names of responses are case-insensitive, as in Go. An extender that is `ignorable` and does not answer is skipped;
if any other does not answer, the scheduling cycle fails. Upstream: pkg/scheduler/extender.go.
"""

from __future__ import annotations

import ssl
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from control.scheduler.configuration import ExtenderConfig
from control.scheduler.framework import MAX_SCORE, Diagnosis, Rejection
from control.scheduler.nodeinfo import NodeInfo
from control.scheduler.podinfo import PodInfo
from control.scheduler.victims import Victims
from kube import bounded_answer, tls_settings
from kube.tls_files import TlsFiles

if TYPE_CHECKING:
    import aiohttp

NAME = "Extender"
MAX_EXTENDER_SCORE = 10
ANSWER_LIMIT = 4 << 20
"""Bytes of an answer, besides twice what was sent: the same nodes, and why others are none."""


class ExtenderError(Exception):
    """An extender gave no usable answer."""


class Extender:
    """One extender; its connections are kept until `close`."""

    def __init__(self, config: ExtenderConfig) -> None:
        self.config = config
        files = [Path(file) for file in (config.ca_file, config.cert_file, config.key_file) if file]
        self._tls = TlsFiles(self._settings, files) if config.url.lower().startswith("https:") else None
        self._session: aiohttp.ClientSession | None = None

    def interested(self, pod: PodInfo) -> bool:
        """True if the extender manages a resource that the pod requests, or manages none in particular."""
        managed = self.config.managed
        if not managed:
            return True
        spec = pod.pod.spec
        for container in [*spec.containers, *spec.init_containers]:
            resources = container.resources
            if resources is not None and (managed & resources.requests.keys() or managed & resources.limits.keys()):
                return True
        return False

    # -- what it is asked -------------------------------------------------------------------------------------------
    async def filter(self, pod: PodInfo, nodes: Sequence[NodeInfo], diagnosis: Diagnosis) -> set[str]:
        """Return the names of the nodes that it lets the pod onto; the others' reasons go into the diagnosis."""
        names = {node.name for node in nodes}
        if not self.config.filter_verb:
            return names
        answer = await self._post(self.config.filter_verb, self._arguments(pod, nodes))
        if answer.get("error"):
            raise ExtenderError(str(answer["error"]))
        kept = _kept(answer)
        hopeless, failed = answer.get("failedandunresolvablenodes") or {}, answer.get("failednodes") or {}
        for name, why in {**failed, **hopeless}.items():
            diagnosis.rejections[name] = Rejection(NAME, (str(why),), unresolvable=name in hopeless)
        return names - failed.keys() - hopeless.keys() if kept is None else names & kept

    async def prioritize(self, pod: PodInfo, nodes: Sequence[NodeInfo]) -> dict[str, int]:
        """Return points by node, on the scale of the plugins' scores."""
        if not self.config.prioritize_verb:
            return {}
        found = await self._post_any(self.config.prioritize_verb, self._arguments(pod, nodes))
        scale = self.config.weight * MAX_SCORE // MAX_EXTENDER_SCORE
        scores = [_lowered(entry) for entry in found or ()]
        return {str(score.get("host", "")): int(score.get("score", 0)) * scale for score in scores}

    async def preempt(self, pod: PodInfo, candidates: Sequence[Victims]) -> list[Victims]:
        """Return those candidates that it agrees with, their victims reduced to the ones that it names."""
        if not self.config.preempt_verb:
            return list(candidates)
        if self.config.node_cache_capable:
            key = "NodeNameToMetaVictims"
            victims = {c.node: _victims([{"UID": p.uid} for p in c.pods], c) for c in candidates}
        else:
            key = "NodeNameToVictims"
            victims = {c.node: _victims([p.pod for p in c.pods], c) for c in candidates}
        answer = await self._post(self.config.preempt_verb, {"Pod": pod.pod, key: victims})
        chosen: Mapping[str, Any] = answer.get("nodenametometavictims") or {}
        kept = []
        for candidate in candidates:
            if candidate.node in chosen:
                meta = _lowered(chosen[candidate.node] or {})
                wanted = {_lowered(p).get("uid") for p in meta.get("pods") or ()}
                pods = tuple(p for p in candidate.pods if p.uid in wanted)
                violations = int(meta.get("numpdbviolations", candidate.violations) or 0)
                kept.append(Victims(candidate.node, pods, violations))
        return [candidate for candidate in kept if candidate.pods]

    async def bind(self, pod: PodInfo, node: str) -> None:
        """Have it bind the pod; raises ExtenderError if it does not."""
        arguments = {
            "PodName": pod.pod.metadata.name,
            "PodNamespace": pod.namespace,
            "PodUID": pod.uid,
            "Node": node,
        }
        answer = await self._post(self.config.bind_verb, arguments)
        if answer.get("error"):
            raise ExtenderError(str(answer["error"]))

    # -- HTTP -------------------------------------------------------------------------------------------------------
    def _arguments(self, pod: PodInfo, nodes: Iterable[NodeInfo]) -> dict[str, Any]:
        if self.config.node_cache_capable:
            return {"Pod": pod.pod, "Nodes": None, "NodeNames": [node.name for node in nodes]}
        return {"Pod": pod.pod, "Nodes": {"items": [node.node for node in nodes]}, "NodeNames": None}

    async def _post(self, verb: str, value: Any) -> dict[str, Any]:
        found = await self._post_any(verb, value)
        if not isinstance(found, dict):
            raise ExtenderError(f"{self.config.url}/{verb}: the answer is no object")
        return _lowered(found)

    async def _post_any(self, verb: str, value: Any) -> Any:
        import aiohttp  # where there are no extenders, its 100 ms of start-up are for nothing

        url, sent = f"{self.config.url}/{verb}", msgspec.json.encode(value)
        try:
            async with self._connection().post(
                url,
                data=sent,
                headers={"Content-Type": "application/json"},
                ssl=self._tls.current() if self._tls is not None else True,
            ) as answer:
                body = await bounded_answer.read(answer, ANSWER_LIMIT + 2 * len(sent))
                if answer.status != 200:
                    raise ExtenderError(f"failed {verb} with extender at URL {url}, code {answer.status}")
                return msgspec.json.decode(body)
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            raise ExtenderError(f"failed {verb} with extender at URL {url}: {error or type(error).__name__}") from error

    def _connection(self) -> aiohttp.ClientSession:
        import aiohttp

        from kube.http_connector import Connector

        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self.config.timeout)
            self._session = aiohttp.ClientSession(connector=Connector(), timeout=timeout)
        return self._session

    def _settings(self) -> ssl.SSLContext:
        config = self.config
        context = tls_settings.verifying(cafile=config.ca_file or None)
        if config.insecure:
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        if config.cert_file:
            context.load_cert_chain(config.cert_file, config.key_file or None)
        return context

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def _victims(pods: list[Any], candidate: Victims) -> dict[str, Any]:
    return {"Pods": pods, "NumPDBViolations": candidate.violations}


def _kept(answer: Mapping[str, Any]) -> set[str] | None:
    if answer.get("nodenames") is not None:
        return set(answer["nodenames"])
    if answer.get("nodes") is not None:
        return {item["metadata"]["name"] for item in _lowered(answer["nodes"]).get("items") or ()}
    return None


def _lowered(found: Mapping[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in found.items()}
