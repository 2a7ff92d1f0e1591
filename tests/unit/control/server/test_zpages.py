from __future__ import annotations

import json
from pathlib import Path

import pytest

from control.config import ControlConfig
from control.features import GATES, check
from control.http.exchange import Request
from control.server.zpages import ZPages
from kube.errors import StatusError
from tests.support.clock import FakeClock

NOWHERE = Path("/nowhere")
CONFIG = ControlConfig(NOWHERE, NOWHERE / "a.crt", NOWHERE / "a.key", NOWHERE / "ca.crt", NOWHERE / "sa.key")


def request(path: str, accept: str = "", method: str = "GET") -> Request:
    async def body(limit: int) -> bytes:
        return b""

    return Request(method, path, b"", {b"accept": accept.encode()} if accept else {}, body)


async def test_status_is_text_for_people_and_json_for_tools() -> None:
    clock = FakeClock()
    pages = ZPages(CONFIG, clock)
    await clock.advance(3725)
    text = pages.answer(request("/statusz", "application/json, */*"))
    assert text is not None and b"Up: 1 hr 02 min 05 sec\n" in text.body and text.content_type.startswith(b"text/plain")
    found = pages.answer(request("/statusz", "application/json;v=v1beta1;g=config.k8s.io;as=Statusz"))
    assert found is not None
    reported = json.loads(found.body)
    assert (reported["apiVersion"], reported["kind"], reported["uptimeSeconds"]) == (
        "config.k8s.io/v1beta1",
        "Statusz",
        3725,
    )
    assert reported["emulationVersion"] == "1.36" and "/readyz" in reported["paths"]
    assert pages.answer(request("/statusz", method="POST")) is None and pages.answer(request("/other")) is None


@pytest.mark.parametrize("accept", ["application/json", "application/json;v=v2;g=config.k8s.io;as=Statusz"])
def test_json_in_an_unknown_form_is_not_acceptable(accept: str) -> None:
    with pytest.raises(StatusError) as caught:
        ZPages(CONFIG, FakeClock()).answer(request("/statusz", accept))
    assert caught.value.code == 406


def test_flags_are_shown_as_upstream_writes_them() -> None:
    found = ZPages(CONFIG, FakeClock()).answer(
        request("/flagz", "application/json;v=v1alpha1;g=config.k8s.io;as=Flagz")
    )
    assert found is not None
    flags = json.loads(found.body)["flags"]
    assert (flags["request-timeout"], flags["authorization-mode"], flags["secure-port"]) == (
        "1m0s",
        "[Node,RBAC]",
        "6443",
    )
    assert flags["tls-cert-file"] == "/nowhere/a.crt" and "token-auth-file" not in flags


def test_gates_can_be_named_but_not_turned() -> None:
    check({"WatchList": True, "AllAlpha": False})
    with pytest.raises(ValueError, match="cannot set feature gate WatchList to false, feature is locked to true"):
        check({"WatchList": False})
    with pytest.raises(ValueError, match="unrecognized feature gate: Nothing"):
        check({"Nothing": True})
    assert all(stage in ("", "BETA", "ALPHA", "DEPRECATED") for stage, _ in GATES.values())
