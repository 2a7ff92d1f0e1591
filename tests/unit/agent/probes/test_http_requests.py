"""Requests of httpGet probes and hooks: limits of their size, their hosts, and how often they are formed."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from agent import host_lookups, http_get, http_request
from agent.probes import http
from agent.probes.result import Result, Target, Verdict
from agent.threads import Owner
from kube import urls
from kube.api import core_v1
from tests.support.cost_cases.inputs import combining

MAIN = core_v1.Container(name="main")
OWNER = Owner("uid")


def target() -> Target:
    return Target(MAIN, "id", "10.0.0.1", OWNER)


def test_a_request_is_formed_once_for_all_runs_of_a_probe(monkeypatch: pytest.MonkeyPatch) -> None:
    formed = []
    monkeypatch.setattr(http_request, "form", lambda url, headers: formed.append(url))
    probed, action, other = target(), core_v1.HTTPGetAction(port=1), core_v1.HTTPGetAction(port=2)
    for given in (action, other, action):
        probed.once(given, lambda given=given: http._request(given, probed))  # type: ignore[misc]
    assert formed == ["http://10.0.0.1:1/", "http://10.0.0.1:2/"]


@pytest.mark.parametrize("host", ["a/b", "a?b", "a#b", "a b", "a@b", "a\\b", "a\x00"])
def test_a_host_that_would_end_in_the_url_is_the_probes_error(host: str) -> None:
    found = http._request(core_v1.HTTPGetAction(port=1, host=host), target())
    assert isinstance(found, Result) and found.verdict is Verdict.ERRORED
    assert "invalid URL escape" in found.message


def test_a_long_path_is_the_probes_error() -> None:
    fits = http_request.URL_LENGTH - len("http://10.0.0.1:80")
    found = http._request(core_v1.HTTPGetAction(port=80, path="/" * fits), target())
    assert isinstance(found, http_request.Request) and len(found.url) == http_request.URL_LENGTH
    found = http._request(core_v1.HTTPGetAction(port=80, path="/" * 1_000_000), target())
    assert found == Result(Verdict.ERRORED, "the URL has more than 8192 characters")


def test_long_headers_fail_the_probe() -> None:
    action = core_v1.HTTPGetAction(port=80, http_headers=[core_v1.HTTPHeader(name="X", value="a" * 65536)])
    found = http._request(action, target())
    assert found == Result(Verdict.FAILURE, 'Get "http://10.0.0.1:80/": the headers have more than 65536 characters')


def test_headers_that_repeat_a_name_count_and_are_not_joined() -> None:
    class Name(str):
        joined = 0

        def split(self, *args: Any) -> list[str]:  # type: ignore[override]
            Name.joined += 1
            return super().split(*args)

    many = [core_v1.HTTPHeader(name=Name("a"), value="") for _ in range(30_000)]
    found = http._request(core_v1.HTTPGetAction(port=80, http_headers=many), target())
    assert found == Result(Verdict.FAILURE, 'Get "http://10.0.0.1:80/": the headers have more than 65536 characters')
    assert not Name.joined


async def test_headers_are_joined_once_for_all_redirects(monkeypatch: pytest.MonkeyPatch) -> None:
    sent, joined = list[bytes](), list[object]()
    join = http_request._joined

    async def get(request: http_request.Request, *_: object) -> http_get.Response:
        sent.append(request.head)
        return http_get.Response(302, b"/next")

    monkeypatch.setattr(http_get, "get", get)
    monkeypatch.setattr(http_request, "_joined", lambda headers: joined.append(headers) or join(headers))
    action = core_v1.HTTPGetAction(port=80, http_headers=[core_v1.HTTPHeader(name="x-a", value=" 1 ")])
    probe, probed = core_v1.Probe(http_get=action), target()
    for _ in range(2):
        found = await http.HTTPProber().probe(probe, probed)
        assert found.message.endswith("stopped after 10 redirects")
    assert len(joined) == 1 and len(sent) == 20
    rest = b"Host: 10.0.0.1:80\r\nUser-Agent: kube-probe/1.36\r\nAccept: */*\r\nX-A: 1\r\nConnection: close\r\n\r\n"
    assert set(sent) == {b"GET / HTTP/1.1\r\n" + rest, b"GET /next HTTP/1.1\r\n" + rest}


def test_a_redirect_to_a_host_of_combining_characters_is_refused_before_it_is_parsed() -> None:
    with pytest.raises(ValueError, match="failed to parse Location header: it has more than 8192 bytes"):
        http._resolved("http://10.0.0.1/", combining("http://")(62000).encode())
    with pytest.raises(ValueError, match="the host has more than 512 characters"):
        http._resolved("http://10.0.0.1/", combining("http://")(4000).encode())
    assert http._resolved("http://10.0.0.1/", "http://\u00e9/".encode()) == "http://\u00e9/"


def test_long_hosts_are_refused_wherever_a_url_has_them() -> None:
    long = combining()(4000)
    for url in (f"http://{long}/", f"//{long}", f"http:/\t/{long}", f"http://{long}@a/"):
        with pytest.raises(ValueError, match="the host has more than 512 characters"):
            urls.split(url)
    assert urls.split(f"http://a/{long}").path == f"/{long}"
    assert urls.split("http://" + "a" * 1000).hostname == "a" * 1000


async def test_a_long_name_is_not_looked_up() -> None:
    for name in (combining()(62000), "a" * 254):
        with pytest.raises(socket.gaierror):
            await host_lookups.dial(lambda: None, name, 80, OWNER)  # type: ignore[arg-type, return-value]
