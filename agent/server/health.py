"""/healthz with its checks, and their results as metrics (component-base's SLIs)."""

from __future__ import annotations

from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from agent.metrics.counters import Counter
from agent.metrics.exposition import Text
from kube.exposition import CONTENT_TYPE

CHECKS = ("ping", "log", "syncloop")


class Health:
    """Answers by `health`, which returns why the agent is unwell; the process that answers pings and logs."""

    def __init__(self, health: Callable[[], str]) -> None:
        self._health = health
        self._checks = Counter(
            "kubernetes_healthcheck",
            "This metric records the result of a single healthcheck.",
            ("name", "type"),
            kind="gauge",
        )
        self._totals = Counter(
            "kubernetes_healthchecks_total",
            "This metric records the results of all healthcheck.",
            ("name", "status", "type"),
        )

    def _check(self, name: str) -> str:
        why = self._health() if name == "syncloop" else ""
        self._checks.set(float(not why), name, "healthz")
        self._totals.inc(name, "error" if why else "success", "healthz")
        return why

    async def all(self, request: Request) -> Response:
        """Handle /healthz: "ok", or each check if one fails or `verbose` is set."""
        left_out = request.query_params.getlist("exclude")
        found = {name: "" if name in left_out else self._check(name) for name in CHECKS}
        lines = []
        for name, why in found.items():
            good = f"[+]{name} excluded: ok" if name in left_out else f"[+]{name} ok"
            lines.append(f"[-]{name} failed: reason withheld" if why else good)
        lines += [
            f"warn: some health checks cannot be excluded: no matches for {name!r}".replace("'", '"')
            for name in left_out
            if name not in CHECKS
        ]
        if any(found.values()):
            return PlainTextResponse("\n".join([*lines, "healthz check failed", ""]), 500)
        if "verbose" in request.query_params:
            return PlainTextResponse("\n".join([*lines, "healthz check passed", ""]))
        return PlainTextResponse("ok")

    async def one(self, request: Request) -> Response:
        """Answer /healthz/NAME."""
        name = request.path_params["name"]
        if name not in CHECKS:
            return PlainTextResponse("404 page not found\n", 404)
        why = self._check(name)
        return PlainTextResponse(f"internal server error: {why}\n" if why else "ok", 500 if why else 200)

    async def slis(self, request: Request) -> Response:
        """Answer /metrics/slis."""
        for name in CHECKS:
            self._check(name)
        text = Text()
        self._checks.write(text)
        self._totals.write(text)
        return PlainTextResponse(str(text), media_type=CONTENT_TYPE)
