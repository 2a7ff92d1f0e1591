"""No cache of the server grows by what clients send: neither by many texts nor by long ones."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable, Iterator

import pytest

from control.auth.rbac import RBACAuthorizer
from control.auth.user import AuthzAttributes, UserInfo
from control.fairness.fairness import Fairness
from control.http.exchange import MOST_OPTIONS, Request
from control.http.negotiate import negotiate
from control.interfaces.requestinfo import parse_path
from control.server.metrics import labels_of
from kube.errors import StatusError

LONG = 40_000
ME = UserInfo("system:serviceaccount:default:me", "", ("system:authenticated",))


async def nothing(limit: int) -> bytes:
    return b""


def _texts(count: int) -> Iterator[str]:
    for number in range(count):
        yield f"{number:x}".rjust(LONG, "x")


def ask(make: Callable[[str], AuthzAttributes]) -> Callable[[str], object]:
    authorizer = RBACAuthorizer()
    return lambda text: authorizer.authorize(make(text))


def flow() -> Callable[[str], object]:
    fairness = Fairness(600, 15)
    return lambda text: fairness.flow(ME, parse_path("GET", f"/{text}"))


def label(text: str) -> object:
    return labels_of(Request("GET", f"/apis/{text}/v1/{text}", b"", {}, nothing))


WAYS: dict[str, Callable[[], Callable[[str], object]]] = {
    "path": lambda: lambda text: parse_path("GET", f"/api/v1/namespaces/{text}/pods"),
    "method": lambda: lambda text: parse_path(text, "/version"),
    "accept": lambda: lambda text: negotiate(f"application/json, {text}"),
    "metrics": lambda: label,
    "rbac path": lambda: ask(lambda text: AuthzAttributes(user=ME, verb="get", path=text)),
    "rbac resource": lambda: ask(lambda text: AuthzAttributes(user=ME, verb="get", version="v1", resource=text)),
    "rbac namespace": lambda: ask(
        lambda text: AuthzAttributes(user=ME, verb="get", version="v1", resource="pods", namespace=text)
    ),
    "rbac user": lambda: ask(
        lambda text: AuthzAttributes(user=UserInfo(text), verb="get", version="v1", resource="pods")
    ),
    "rbac groups": lambda: ask(
        lambda text: AuthzAttributes(user=UserInfo("u", "", (text,)), verb="get", version="v1", resource="pods")
    ),
    "flow": flow,
}


@pytest.mark.parametrize("name", WAYS)
def test_long_texts_of_clients_are_not_kept(name: str) -> None:
    use = WAYS[name]()
    use("ordinary")  # what is made once
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        for text in _texts(50):
            use(text)
        del text
        gc.collect()
        kept = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert kept < 2 * LONG


def test_a_query_with_too_many_options_is_refused_before_it_is_read() -> None:
    request = Request("GET", "/version", b"&".join([b"a=b"] * (MOST_OPTIONS + 1)), {}, nothing)
    with pytest.raises(StatusError) as caught:
        request.option("a")
    assert (caught.value.code, str(caught.value)) == (400, f"more than {MOST_OPTIONS} query options")


def test_of_an_accept_header_only_the_first_media_types_are_looked_at() -> None:
    with pytest.raises(StatusError):
        negotiate("a/b," * 100 + "application/json")
    assert negotiate("a/b," * 63 + "application/yaml").yaml
