"""Authorization on the kubelet's port, and the rate of reviews sent to the API server."""

import time
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from agent.server import auth_filter
from agent.server.auth_filter import AuthFilter
from agent.server.authorization import Authorizer, attributes
from control.auth.x509 import CertificateAuthenticator
from kube import pki, subjects
from kube.api import authentication_v1, authorization_v1
from kube.client import Client
from kube.delegated_authentication import Authenticator, User
from kube.errors import StatusError
from kube.fair_steps import FairSteps
from kube.step_limit import StepTooLong, sampling
from kube.step_shares import Shares
from kube.tracing.tracer import Tracer
from tests.support.clock import FakeClock
from tests.support.spans import tracer


class API:
    """An API server that knows one token and what its user may do."""

    def __init__(self) -> None:
        self.allowed = {("get", "metrics"), ("create", "proxy"), ("get", "pods")}
        self.received: list[str] = []
        self.failing = False

    async def create(self, review: Any) -> Any:
        if self.failing:
            raise StatusError(503, "ServiceUnavailable", "away")
        if isinstance(review, authentication_v1.TokenReview):
            self.received.append("token")
            user = authentication_v1.UserInfo(username="scraper", groups=["monitoring"], uid="1")
            good = review.spec.token == "good"
            review.status = authentication_v1.TokenReviewStatus(authenticated=good, user=user if good else None)
        else:
            assert isinstance(review, authorization_v1.SubjectAccessReview)
            wanted = review.spec.resource_attributes
            assert wanted is not None
            assert (wanted.resource, wanted.name, wanted.version) == ("nodes", "node-1", "v1")
            self.received.append(f"{review.spec.user} {wanted.verb} {wanted.subresource}")
            allowed = review.spec.user == "admin" or (wanted.verb, wanted.subresource) in self.allowed
            review.status = authorization_v1.SubjectAccessReviewStatus(allowed=allowed)
        return review


class World:
    def __init__(self, anonymous: bool = False, tracer: Tracer | None = None) -> None:
        self.api, self.clock = API(), FakeClock()
        client = cast(Client, self.api)
        self.guard = AuthFilter(
            self._app,
            Authenticator(client, self.clock, cache_seconds=120, anonymous=anonymous),
            Authorizer(client, "node-1", self.clock, allowed_seconds=300, denied_seconds=30),
            tracer=tracer,
        )
        self.reached: list[str] = []

    async def _app(self, scope: Any, receive: Any, send: Any) -> None:
        self.reached.append(scope["path"])
        while scope["path"].endswith("/endless"):
            pass
        if scope["path"].endswith("/costly"):
            until = time.thread_time() + 0.02
            while time.thread_time() < until:
                pass
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"fine"})

    async def request(
        self, path: str, method: str = "GET", token: str = "", certificate: bytes | None = None, trace: str = ""
    ) -> tuple[int, str]:
        sent: list[Any] = []

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"authorization", f"Bearer {token}".encode())] if token else []
        headers += [(b"traceparent", trace.encode())] if trace else []
        extensions = {"tls": {"client_certificate": certificate}}
        scope = {"type": "http", "method": method, "path": path, "headers": headers, "extensions": extensions}
        await self.guard(scope, None, send)  # type: ignore[arg-type]
        return sent[0]["status"], sent[1]["body"].decode()


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


async def test_requests_are_recorded_in_the_api_servers_trace_and_not_in_anybodys() -> None:
    chosen, kept = tracer()
    world = World(tracer=chosen)
    certificate = _certificate([pki.CLIENT])
    assert (await world.request("/containerLogs/default/web/main", certificate=certificate, trace=TRACE))[0] == 200
    assert (await world.request("/metrics", token="good", trace=TRACE))[0] == 200
    assert (await world.request("/pods", token="bad", trace=TRACE))[0] == 401
    first, second = kept
    assert first.name == "GET /containerLogs" and first.parent is not None and first.parent.traceparent == TRACE
    assert second.name == "GET /metrics" and second.parent is None
    assert [link.traceparent for link in second.links] == [TRACE]


def _certificate(usages: list[Any], name: str = "admin", groups: Sequence[str] = ("system:masters",)) -> bytes:
    now = FakeClock().now()
    ca = pki.new_ca("ca", now - timedelta(days=1))
    issued = pki.issue(ca, name, list(groups), usages=usages, now=now)
    return issued.certificate.public_bytes(Encoding.DER)


async def test_nobody_is_let_in_without_proof() -> None:
    world = World()
    assert await world.request("/pods") == (401, "Unauthorized")
    assert await world.request("/pods", token="bad") == (401, "Unauthorized")
    assert world.reached == []


async def test_a_token_is_vouched_for_and_remembered_for_two_minutes() -> None:
    world = World()
    assert (await world.request("/metrics", token="good"))[0] == 200
    await world.request("/metrics", token="good")
    assert world.api.received == ["token", "scraper get metrics"]
    await world.clock.advance(121)
    await world.request("/metrics", token="good")
    assert world.api.received[2:] == ["token"]
    await world.clock.advance(180)
    await world.request("/metrics", token="good")
    assert world.api.received[3:] == ["token", "scraper get metrics"]


async def test_a_denial_is_cached_for_half_a_minute_and_names_the_request() -> None:
    world = World()
    refused = (403, "Forbidden (user=scraper, verb=get, resource=nodes, subresource(s)=[stats])")
    assert await world.request("/stats/summary", token="good") == refused
    world.api.allowed.add(("get", "stats"))
    assert await world.request("/stats/summary", token="good") == refused
    await world.clock.advance(31)
    assert (await world.request("/stats/summary", token="good"))[0] == 200


async def test_a_client_certificate_names_user_and_groups() -> None:
    world = World()
    assert await user_of(_certificate([pki.CLIENT])) == User("admin", ("system:masters", "system:authenticated"))
    assert (await world.request("/exec/a/b/c", "POST", certificate=_certificate([pki.CLIENT])))[0] == 200
    assert world.api.received == ["admin create proxy"]


async def user_of(der: bytes) -> User | None:
    return await Authenticator(None, FakeClock(), cache_seconds=120, anonymous=False).authenticate(der, "")


async def test_a_connection_does_not_outlive_its_certificate() -> None:
    """The handshake verified the certificate; the connection, or a resumed session, may be older."""
    der = _certificate([pki.CLIENT])
    rest = (x509.load_der_x509_certificate(der).not_valid_after_utc - FakeClock().now()).total_seconds()
    for anonymous in (False, True):
        world = World(anonymous=anonymous)
        await world.clock.advance(rest - 1)
        assert (await world.request("/pods", certificate=der))[0] == 200
        await world.clock.advance(2)
        assert await world.request("/pods", certificate=der) == (401, "Unauthorized")
        assert (await world.request("/metrics", certificate=der, token="good"))[0] == 200
        assert await world.request("/metrics", certificate=der, token="bad") == (401, "Unauthorized")
        assert await world.request("/pods", certificate=_certificate([pki.SERVER])) == (401, "Unauthorized")


def _with_subject(*attributes: tuple[x509.ObjectIdentifier, str]) -> tuple[pki.KeyPair, bytes]:
    clock = FakeClock()
    ca = pki.new_ca("ca", clock.now() - timedelta(days=1))
    subject = x509.Name([x509.NameAttribute(oid, value) for oid, value in attributes])
    later = clock.now() + timedelta(days=1)
    made = pki.sign(ca, subject, pki.new_key().public_key(), [], [pki.CLIENT], clock.now(), later)
    return ca, made.public_bytes(Encoding.DER)


async def test_of_several_common_names_the_agent_and_the_api_server_take_the_last() -> None:
    ca, der = _with_subject((NameOID.COMMON_NAME, "admin"), (NameOID.COMMON_NAME, "jane"))
    found = await user_of(der)
    assert found is not None
    assert found.name == CertificateAuthenticator(lambda: [ca.certificate], FakeClock()).user(der).name == "jane"


async def test_a_subject_with_two_uids_names_nobody() -> None:
    _, der = _with_subject((NameOID.COMMON_NAME, "jane"), (subjects.UID, "1"), (subjects.UID, "2"))
    assert await user_of(der) is None
    _, der = _with_subject((NameOID.COMMON_NAME, "jane"), (subjects.UID, "1"))
    assert await user_of(der) == User("jane", ("system:authenticated",), "1")


async def test_a_serving_certificate_is_no_client() -> None:
    world = World()
    assert (await world.request("/pods", certificate=_certificate([pki.SERVER])))[0] == 401


async def test_anonymous_requests_are_authorised_as_such_where_they_are_allowed() -> None:
    world = World(anonymous=True)
    status, text = await world.request("/stats/summary")
    assert status == 403
    assert "system:anonymous" in text
    assert (await world.request("/stats/summary", token="bad"))[0] == 401


async def test_while_the_api_server_is_away_nothing_is_allowed() -> None:
    world = World()
    world.api.failing = True
    assert (await world.request("/metrics", token="good"))[0] == 500
    assert world.reached == []


@pytest.mark.parametrize(
    "path",
    [
        "/logs/containers/web.log/../../../../pods/secret.log",
        "/logs/./syslog",
        "/logs/..",
        "/logs/pods/../",
        "//pods",
        "/logs//syslog",
        "/pods//",
        "//",
        "pods",
        "",
    ],
)
async def test_an_ambiguous_path_is_refused_for_every_user(path: str) -> None:
    world = World()
    assert await world.request(path, certificate=_certificate([pki.CLIENT])) == (400, "invalid path")
    assert (world.reached, world.api.received) == ([], [])


@pytest.mark.parametrize("path", ["/", "/pods/", "/logs/...", "/logs/.hidden", "/logs/a..b/", "/logs/%2e%2e/x"])
async def test_a_path_with_one_meaning_is_let_through(path: str) -> None:
    world = World()
    assert (await world.request(path, certificate=_certificate([pki.CLIENT])))[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "verb", "subresources"),
    [
        ("GET", "/stats/summary", "get", ("stats",)),
        ("GET", "/metrics/cadvisor", "get", ("metrics",)),
        ("GET", "/containerLogs/a/b/c", "get", ("proxy",)),
        ("GET", "/pods", "get", ("pods", "proxy")),
        ("GET", "/runningpods/", "get", ("pods", "proxy")),
        ("GET", "/healthz/ping", "get", ("healthz", "proxy")),
        ("GET", "/statusz", "get", ("statusz",)),
        ("GET", "/flagz", "get", ("configz",)),
        ("GET", "/configz", "get", ("configz", "proxy")),
        ("GET", "/podsandmore", "get", ("proxy",)),
        ("POST", "/exec/a/b/c", "create", ("proxy",)),
        ("GET", "/exec/a/b/c", "create", ("proxy",)),
        ("GET", "/attach/a/b/c", "create", ("proxy",)),
        ("GET", "/portForward/a/b", "create", ("proxy",)),
        ("GET", "/Exec/a/b/c", "create", ("proxy",)),
        ("GET", "//exec/a/b/c", "create", ("proxy",)),
        ("GET", "/./exec/a/b/c", "create", ("proxy",)),
        ("GET", "/pods/../exec/a/b/c", "create", ("proxy",)),
        ("GET", "/stats//../run", "create", ("proxy",)),
    ],
)
def test_paths_are_verbs_on_subresources_and_commands_are_always_create(
    method: str, path: str, verb: str, subresources: tuple[str, ...]
) -> None:
    assert attributes(method, path) == (verb, subresources)


async def test_a_request_that_holds_the_loop_is_stopped_and_its_user_is_refused_for_a_while(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(auth_filter, "_shares", Shares("test", 0.1, 0.2, 10.0))
    world, admin = World(), _certificate([pki.CLIENT])
    with sampling():
        with pytest.raises(StepTooLong):
            await world.request("/metrics/endless", token="good")
        status, text = await world.request("/metrics", token="good")
        assert (status, text.startswith("too many requests, please try again in ")) == (429, True)
        with pytest.raises(StepTooLong):
            await world.request("/metrics/endless", certificate=admin)
        assert (await world.request("/metrics", certificate=admin))[0] == 200


async def test_a_user_whose_requests_have_short_steps_is_delayed_and_the_api_server_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shares = Shares("test", 0.1, 0.001, 60.0, FairSteps(0.005), every_step=True)
    monkeypatch.setattr(auth_filter, "_shares", shares)
    monkeypatch.setattr(auth_filter, "_API_SERVER", "admin")
    world, server = World(), _certificate([pki.CLIENT], groups=[])
    for token, certificate, last in (("good", None, 429), ("", server, 200)):
        for _ in range(10):
            status, _ = await world.request("/metrics/costly", token=token, certificate=certificate)
        assert status == last
