"""Numbers of Ingresses that are converted for a namespace."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from kube.api import meta_v1, networking_v1
from kube.gateway import ingress_conversions, ingresses
from kube.gateway.ingress_conversions import TOO_MANY_PATHS, IngressConversions
from kube.object_names import key_of
from tests.support.gateways import FakeView, ingress, ingress_rule, service

DEFAULT = {"service": {"name": "app", "port": {"number": 8080}}}


@pytest.mark.parametrize("spec", [{"defaultBackend": DEFAULT}, {}, {"tls": [{"hosts": ["a.example"]}]}])
async def test_an_ingress_without_paths_counts_as_one(spec: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ingress_conversions, "MOST_CONVERTED", 3)
    made = {}
    for number in range(5):
        one = ingress(name=f"i{number}", **spec)
        one.spec.rules = []
        made[key_of(one)] = one
    other = ingress(ingress_rule("other.example", "/"), name="z", namespace="other")
    made[key_of(other)] = other
    default = meta_v1.ObjectMeta(name="wherry", annotations={ingresses.DEFAULT_CLASS: "true"})
    served = networking_v1.IngressClassSpec(controller=ingresses.CONTROLLER)
    classes = [networking_v1.IngressClass(metadata=default, spec=served)]
    conversions = IngressConversions(
        cast(Any, SimpleNamespace(list=lambda: classes)),
        cast(Any, SimpleNamespace(list=lambda: list(made.values()), get=made.get)),
        cast(Any, FakeView(service("app", "infra"))),
        lambda: None,
    )
    found = {one.metadata.name: rules is not TOO_MANY_PATHS for one, rules in await conversions.converted()}
    assert found == {"i0": True, "i1": True, "i2": True, "i3": False, "i4": False, "z": True}
