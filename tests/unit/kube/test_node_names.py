from __future__ import annotations

import pytest

from kube.node_names import reserved


@pytest.mark.parametrize(
    "name, why",
    [
        ("webhook.shop.svc", "webhook.shop.svc ends in 'svc', as names of Services do"),
        ("svc", "svc ends in 'svc', as names of Services do"),
        ("10-244-0-9.shop.pod", "10-244-0-9.shop.pod ends in 'pod', as names of pods do"),
        ("Webhook.Shop.SVC.", "webhook.shop.svc ends in 'svc', as names of Services do"),
        (
            "n1.example.lan",
            "n1.example.lan is in the cluster's domain example.lan, whose names are those of Services and pods",
        ),
        (
            "example.lan",
            "example.lan is in the cluster's domain example.lan, whose names are those of Services and pods",
        ),
        ("localhost", "localhost is a name of the API server"),
        ("kubernetes.default", "kubernetes.default is a name of the API server"),
        ("n1", ""),
        ("svc1", ""),
        ("n1.example.org", ""),
        ("n1.other-example.lan", ""),
        ("svc.example.org", ""),
    ],
)
def test_a_machine_has_no_name_that_a_service_may_have(name: str, why: str) -> None:
    assert reserved(name, "example.lan") == why


def test_without_a_domain_the_other_names_are_reserved_all_the_same() -> None:
    assert reserved("n1.example.lan", "") == "" and reserved("webhook.shop.svc", "")
