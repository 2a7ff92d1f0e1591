"""DefaultTolerationSeconds: pods tolerate a node that is not ready or unreachable for 300 s, unless they specify otherwise."""

from __future__ import annotations

from control.interfaces.admission import Attributes, Plugin

SECONDS = 300
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"


class DefaultTolerationSeconds(Plugin):
    name = "DefaultTolerationSeconds"
    targets = ("pods",)

    def __init__(self, not_ready: int = SECONDS, unreachable: int = SECONDS) -> None:
        self._seconds = {NOT_READY: not_ready, UNREACHABLE: unreachable}

    def handles(self, attributes: Attributes) -> bool:
        return attributes.concern("pods", "CREATE", "UPDATE")

    async def admit(self, attributes: Attributes) -> None:
        assert attributes.obj is not None
        spec = attributes.obj.setdefault("spec", {})
        present = spec.get("tolerations") or []
        missing = [
            {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
            for key, seconds in self._seconds.items()
            if not any(t.get("key", "") in (key, "") and t.get("effect", "") in ("NoExecute", "") for t in present)
        ]
        if missing:
            spec["tolerations"] = [*present, *missing]
            attributes.changed(self.name, "spec.tolerations")
