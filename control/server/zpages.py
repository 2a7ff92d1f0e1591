"""/statusz and /flagz: state and flags of this process, as text for people and as JSON for tools.

As upstream's component-base has them (KEP-4827, KEP-4828; beta in v1.36): plain text unless `Accept` names group, version
and kind of the structured form; JSON requested otherwise is 406. Flags that hold secrets do not exist: all are names
of files, addresses and numbers.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from control.config import ControlConfig
from control.features import state
from control.flags.api_server import FLAGS
from control.flags.kinds import GATES as GATES_KIND
from control.http.accept import clauses
from control.http.exchange import Request, Response
from kube.build import GIT_VERSION, MAJOR, MINOR
from kube.clock import Clock, format_time
from kube.errors import StatusError

COMPONENT = "kube-apiserver"
GROUP, VERSIONS = "config.k8s.io", ("v1beta1", "v1alpha1")
PATHS = ("/flagz", "/healthz", "/livez", "/metrics", "/readyz", "/statusz", "/version")
"""Further endpoints that /statusz lists."""
_WARNING = (
    "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees "
    "and is for debugging purposes only."
)


class ZPages:
    """Both pages of one server."""

    def __init__(self, config: ControlConfig, clock: Clock) -> None:
        self._clock = clock
        self._started: datetime = clock.now()
        self._begun = clock.monotonic()
        self._flags = shown_flags(config)

    def answer(self, request: Request) -> Response | None:
        """Answer a request for one of the pages, None for another path; raises 406."""
        path = request.path.rstrip("/")
        if path not in ("/statusz", "/flagz") or request.method not in ("GET", "HEAD"):
            return None
        kind = "Statusz" if path == "/statusz" else "Flagz"
        version = wanted_version(request.header(b"accept"), kind)
        if not version:
            text = self._status_text() if kind == "Statusz" else self._flags_text()
            return Response(200, text.encode(), b"text/plain; charset=utf-8")
        head = {"kind": kind, "apiVersion": f"{GROUP}/{version}", "metadata": {"name": COMPONENT}}
        body = {**head, **(self._status() if kind == "Statusz" else {"flags": self._flags})}
        return Response(200, msgspec.json.encode(body))

    def _status(self) -> dict[str, Any]:
        return {
            "startTime": format_time(self._started),
            "uptimeSeconds": int(self._clock.monotonic() - self._begun),
            "goVersion": f"python{sys.version_info.major}.{sys.version_info.minor}",
            "binaryVersion": GIT_VERSION.removeprefix("v"),
            "emulationVersion": f"{MAJOR}.{MINOR}",
            "minimumCompatibilityVersion": f"{MAJOR}.{int(MINOR) - 1}",
            "paths": list(PATHS),
        }

    def _status_text(self) -> str:
        status = self._status()
        seconds = status["uptimeSeconds"]
        lines = (
            f"Started: {self._started:%a %b %e %H:%M:%S UTC %Y}",
            f"Up: {seconds // 3600} hr {seconds // 60 % 60:02} min {seconds % 60:02} sec",
            f"Go version: {status['goVersion']}",
            f"Binary version: {status['binaryVersion']}",
            f"Emulation version: {status['emulationVersion']}",
            f"Paths: {' '.join(status['paths'])}",
        )
        return "\n".join(("", f"{COMPONENT} statusz", _WARNING, "", *lines, ""))

    def _flags_text(self) -> str:
        lines = [f"{name}={value}" for name, value in sorted(self._flags.items())]
        return "\n".join(("", f"{COMPONENT} flags", _WARNING, "", *lines, ""))


def shown_flags(config: ControlConfig) -> Mapping[str, str]:
    """Return the flags that a configuration amounts to, under upstream's names."""
    settings = {name: getattr(config, name) for name in config.__struct_fields__}
    # Plugins that are on by a default of the installation are on as if they were named.
    settings["enabled_admission"] = tuple(dict.fromkeys((*config.enabled_admission, *config.default_admission)))
    shown = {name: kind.show(settings[field]) for name, (field, kind) in FLAGS.items() if settings[field] is not None}
    return {
        **shown,
        "feature-gates": GATES_KIND.show({name: on for name, (_, on) in state(config.feature_gates).items()}),
    }


def wanted_version(accept: str, kind: str) -> str:
    """Return the version of the structured form that is requested, "" for text; raises 406."""
    offers = clauses(accept)
    for media, given in offers:
        if media in ("text/plain", "text/*", "*/*"):
            return ""
        if media in ("application/json", "application/*") and given.get("g") == GROUP and given.get("as") == kind:
            if given.get("v") in VERSIONS:
                return str(given["v"])
    if not offers:
        return ""
    raise StatusError(
        406,
        "NotAcceptable",
        f"only the following media types are accepted: text/plain, application/json;g={GROUP};v={VERSIONS[0]};as={kind}",
    )
