"""The model of upstream's RequestInfo says what upstream's own table of examples says (requestinfo_test.go)."""

import pytest

from tests.support.authorised.calls import Call
from tests.support.authorised.recording import Question
from tests.support.authorised.request_info import question_of, selectors_of

PODS = "/api/v1/namespaces/other/pods"


@pytest.mark.parametrize(
    ("method", "raw", "query", "expected"),
    [
        ("GET", "/api/v1/namespaces", "", Question("list", "", "namespaces")),
        ("GET", "/api/v1/namespaces/other", "", Question("get", "", "namespaces", "", "other", "other")),
        ("GET", PODS, "", Question("list", "", "pods", "", "other")),
        ("GET", f"{PODS}/foo", "", Question("get", "", "pods", "", "other", "foo")),
        ("HEAD", f"{PODS}/foo", "", Question("get", "", "pods", "", "other", "foo")),
        ("GET", "/api/v1/pods", "", Question("list", "", "pods")),
        ("HEAD", "/api/v1/pods", "", Question("list", "", "pods")),
        ("GET", f"{PODS}/foo/proxy/a/b", "", Question("get", "", "pods", "proxy", "other", "foo")),
        ("GET", "/api/v1/proxy/namespaces/other/pods/foo", "", Question("proxy", "", "pods", "", "other", "foo")),
        ("GET", "/api/v1/proxy/namespaces/other/pods/foo/log", "", Question("proxy", "", "pods", "", "other", "foo")),
        ("GET", "/api/v1/watch/pods", "", Question("watch", "", "pods")),
        ("GET", "/api/v1/watch/namespaces/other/pods", "", Question("watch", "", "pods", "", "other")),
        ("GET", "/api/v1/watch/namespaces/other/pods/foo/x", "", Question("watch", "", "pods", "x", "other", "foo")),
        ("GET", PODS, "watch=1", Question("watch", "", "pods", "", "other")),
        ("GET", PODS, "watch=0", Question("list", "", "pods", "", "other")),
        ("GET", PODS, "watch=false&watch=true", Question("list", "", "pods", "", "other")),
        ("GET", PODS, "fieldSelector=metadata.name%3Dfoo", Question("list", "", "pods", "", "other", "foo")),
        ("GET", PODS, "fieldSelector=metadata.name==foo&watch=1", Question("watch", "", "pods", "", "other", "foo")),
        ("GET", PODS, "fieldSelector=metadata.name!=foo", Question("list", "", "pods", "", "other")),
        ("GET", PODS, "fieldSelector=metadata.name=b,metadata.name=a", Question("list", "", "pods", "", "other", "a")),
        ("GET", PODS, "fieldSelector=metadata.name=..", Question("list", "", "pods", "", "other")),
        ("GET", PODS, "fieldSelector=metadata.name=a%252Fb", Question("list", "", "pods", "", "other")),
        ("GET", PODS, "fieldSelector=metadata.name=a&limit=many", Question("list", "", "pods", "", "other")),
        ("GET", PODS, "fieldSelector=metadata.name=a&limit=", Question("list", "", "pods", "", "other")),
        ("GET", PODS, "fieldSelector=metadata.name=a&labelSelector=a==b==c", Question("list", "", "pods", "", "other")),
        (
            "GET",
            PODS,
            "fieldSelector=metadata.name=a&labelSelector=a=b,c,!d,e+in+(f,g)",
            Question("list", "", "pods", "", "other", "a"),
        ),
        ("DELETE", f"{PODS}/foo", "", Question("delete", "", "pods", "", "other", "foo")),
        ("DELETE", PODS, "", Question("deletecollection", "", "pods", "", "other")),
        ("DELETE", PODS, "fieldSelector=metadata.name=foo", Question("deletecollection", "", "pods", "", "other")),
        ("POST", "/api/v1/namespaces/other/bindings", "", Question("create", "", "bindings", "", "other")),
        (
            "PUT",
            "/api/v1/namespaces/other/finalize",
            "",
            Question("update", "", "namespaces", "finalize", "other", "other"),
        ),
        ("PATCH", f"{PODS}/foo/status", "", Question("patch", "", "pods", "status", "other", "foo")),
        ("GET", "/apis/apps/v1/namespaces/other/deployments", "", Question("list", "apps", "deployments", "", "other")),
        ("GET", f"{PODS}/a%2Fstatus", "", Question("get", "", "pods", "status", "other", "a")),
        ("GET", "/", "", Question("get", path="/")),
        ("GET", "/api/v1", "", Question("get", path="/api/v1")),
        ("POST", "/apis/apps/v1", "", Question("post", path="/apis/apps/v1")),
        ("GET", "/swaggerapi/openapi/v2/x", "", Question("get", path="/swaggerapi/openapi/v2/x")),
    ],
)
def test_a_request_is_read_as_upstream_reads_it(method: str, raw: str, query: str, expected: Question) -> None:
    assert question_of(Call(method, raw, query)) == expected


def test_authorizers_get_selectors_except_on_the_deprecated_paths() -> None:
    query = "fieldSelector=a%3Db&labelSelector=c"
    assert selectors_of(Call("GET", PODS, query)) == ("a=b", "c")
    assert selectors_of(Call("DELETE", PODS, query)) == ("a=b", "c")
    assert selectors_of(Call("GET", "/api/v1/watch/pods", query)) == ("", "")
    assert selectors_of(Call("GET", f"{PODS}/foo", query)) == ("", "")
