"""Clients that have many tokens and permissions reviewed delay nobody else's reviews, and have no webhook skipped."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import tracemalloc
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from control.auth.webhooks import client as settings
from control.auth.webhooks.client import ReviewClient, ReviewFailed
from kube.clock import SYSTEM
from kube.json_object import Object
from tests.support import https
from tests.support.control import ApiUnderTest, api_server
from tests.support.reviewer import Reviewer, reviewer

PLACES, PLACES_OF_ONE, WAITING = 4, 2, 3
FLOOD, OTHER = "127.0.0.2", "127.0.0.3"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
RBAC = "/apis/rbac.authorization.k8s.io/v1/namespaces/default"
SECRETS = "/api/v1/namespaces/default/secrets"


def tokens(spec: Object) -> Object:
    return {"authenticated": spec["token"] == "good", "user": {"username": "ann"}}


def access(spec: Object) -> Object:
    denied = spec.get("user") == "mallory" and (spec.get("resourceAttributes") or {}).get("resource") == "secrets"
    return {"allowed": False, "denied": denied}


@pytest.fixture(autouse=True)
def few_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "PLACES", PLACES)
    monkeypatch.setattr(settings, "PLACES_OF_ONE", PLACES_OF_ONE, raising=False)
    monkeypatch.setattr(settings, "MOST_WAITING", WAITING, raising=False)


@contextlib.asynccontextmanager
async def server(directory: Path, policy: str = "NoOpinion") -> AsyncIterator[tuple[ApiUnderTest, Reviewer]]:
    """A server whose first authorizer is a webhook that denies mallory the secrets that a role allows."""
    async with reviewer(directory) as hook:
        hook.answers = {"/tokens": tokens, "/access": access}
        webhook = {
            "authorizedTTL": "5m",
            "unauthorizedTTL": "30s",
            "timeout": "30s",
            "subjectAccessReviewVersion": "v1",
            "matchConditionSubjectAccessReviewVersion": "v1",
            "failurePolicy": policy,
            "connectionInfo": {"type": "KubeConfigFile", "kubeConfigFile": str(hook.kubeconfig("/access"))},
            "matchConditions": [{"expression": "request.user in ['mallory', 'alice']"}],
        }
        file = directory / "authorization.yaml"
        authorizers = [{"type": "Webhook", "name": "hook", "webhook": webhook}, {"type": "RBAC", "name": "rbac"}]
        kind = {"apiVersion": "apiserver.config.k8s.io/v1", "kind": "AuthorizationConfiguration"}
        file.write_text(yaml.safe_dump({**kind, "authorizers": authorizers}))
        changes: Object = {"authentication_webhook_file": hook.kubeconfig("/tokens"), "authorization_config_file": file}
        async with api_server(directory, **changes) as api:
            try:
                yield api, hook
            finally:
                hook.held.set()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)


class Connection:
    """A connection from an address, on which one request was sent."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def answer(self) -> tuple[int, bytes]:
        """Return status and head of the answer."""
        async with asyncio.timeout(60):
            head = await self._reader.readuntil(b"\r\n\r\n")
        return int(head.split()[1]), head

    def abort(self) -> None:
        self._writer.transport.abort()


async def send(api: ApiUnderTest, address: str, token: str) -> Connection:
    """Have a token reviewed for a client of an address of this machine."""
    tls = api.tls()
    port = int(api.url.rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, local_addr=(address, 0))
    head = f"POST {WHO} HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer {token}\r\n"
    writer.write(f"{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}".encode())
    return Connection(reader, writer)


def reviewed(hook: Reviewer) -> list[str]:
    return [body["spec"]["token"] for body in hook.at("/tokens")]


async def test_a_token_is_reviewed_while_those_of_another_address_wait(tmp_path: Path) -> None:
    async with server(tmp_path) as (api, hook):
        hook.held.clear()
        flood = [await send(api, FLOOD, f"bad-{number}") for number in range(PLACES_OF_ONE + WAITING)]
        await until(lambda: len(reviewed(hook)) == PLACES_OF_ONE)
        good = await send(api, OTHER, "good")
        await until(lambda: "good" in reviewed(hook))
        assert len(reviewed(hook)) == PLACES_OF_ONE + 1, "the others of the flood wait"
        hook.held.set()
        assert (await good.answer())[0] == 201
        assert [(await each.answer())[0] for each in flood] == [401] * len(flood)
        for each in (good, *flood):
            each.abort()


async def test_a_token_that_cannot_be_reviewed_is_not_unauthorized(tmp_path: Path) -> None:
    async with server(tmp_path) as (api, hook):
        hook.held.clear()
        flood = [await send(api, FLOOD, f"bad-{number}") for number in range(PLACES_OF_ONE + WAITING)]
        await until(lambda: len(reviewed(hook)) == PLACES_OF_ONE)
        line = api.api.auth.token_webhook
        assert line is not None
        await until(lambda: line._reviews.places.waiting(FLOOD) == WAITING)
        one_more = await send(api, FLOOD, "good")
        status, head = await one_more.answer()
        assert status == 429 and b"retry-after: 1" in head.lower()
        hook.held.set()
        assert [(await each.answer())[0] for each in flood] == [401] * len(flood)
        for each in (one_more, *flood):
            each.abort()


async def test_tokens_of_clients_that_have_gone_are_not_reviewed(tmp_path: Path) -> None:
    async with server(tmp_path) as (api, hook):
        hook.held.clear()
        flood = [await send(api, FLOOD, f"bad-{number}") for number in range(PLACES_OF_ONE + WAITING)]
        await until(lambda: len(reviewed(hook)) == PLACES_OF_ONE)
        line = api.api.auth.token_webhook
        assert line is not None
        await until(lambda: line._reviews.places.waiting(FLOOD) == WAITING)
        for each in flood:
            each.abort()
        await until(lambda: line._reviews.places.waiting(FLOOD) == 0)
        hook.held.set()
        good = await send(api, FLOOD, "good")
        assert (await good.answer())[0] == 201
        assert len(reviewed(hook)) == PLACES_OF_ONE + 1
        good.abort()


async def test_one_token_of_several_addresses_is_reviewed_once(tmp_path: Path) -> None:
    async with server(tmp_path) as (api, hook):
        hook.held.clear()
        clients = [await send(api, address, "good") for address in (FLOOD, FLOOD, OTHER, OTHER)]
        await until(lambda: len(reviewed(hook)) == 1)
        hook.held.set()
        assert [(await each.answer())[0] for each in clients] == [201] * 4
        assert reviewed(hook) == ["good"]
        for each in clients:
            each.abort()


async def test_a_token_that_is_too_long_is_sent_to_no_webhook(tmp_path: Path) -> None:
    async with server(tmp_path) as (api, hook):
        long = await send(api, FLOOD, "x" * ((32 << 10) + 1))
        assert (await long.answer())[0] == 401 and reviewed(hook) == []
        long.abort()


@pytest.mark.parametrize("policy", ["NoOpinion", "Deny"])
async def test_a_webhook_that_denies_is_not_skipped_by_a_flood_of_questions(tmp_path: Path, policy: str) -> None:
    rules = [{"apiGroups": [""], "resources": ["secrets", "configmaps"], "verbs": ["get", "list"]}]
    subjects = [
        {"kind": "User", "apiGroup": "rbac.authorization.k8s.io", "name": name} for name in ("mallory", "alice")
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"}
    async with server(tmp_path, policy) as (api, hook):
        assert (await api.request("POST", f"{RBAC}/roles", {"metadata": {"name": "r"}, "rules": rules})).status == 201
        binding = {"metadata": {"name": "r"}, "roleRef": role, "subjects": subjects}
        assert (await api.request("POST", f"{RBAC}/rolebindings", binding)).status == 201

        async def get(user: str, path: str) -> int:
            return (await api.request("GET", path, user=(user, ()))).status

        def asked(user: str) -> int:
            return len([body for body in hook.at("/access") if body["spec"].get("user") == user])

        hook.held.clear()
        flood = [asyncio.create_task(get("mallory", f"/x{number}")) for number in range(PLACES_OF_ONE)]
        await until(lambda: asked("mallory") == PLACES_OF_ONE)
        flood += [asyncio.create_task(get("mallory", f"/y{number}")) for number in range(WAITING - 1)]
        secrets = asyncio.create_task(get("mallory", SECRETS))
        (authorizer,) = [link.authorizer for link in api.api.auth.authorizer.links if link.type == "Webhook"]
        await until(lambda: authorizer._reviews.places.waiting("mallory") == WAITING)  # type: ignore[attr-defined]
        assert await get("mallory", f"{SECRETS}/one") == 429, "a question that cannot be asked is no lack of an opinion"
        alice = asyncio.create_task(get("alice", "/api/v1/namespaces/default/configmaps"))
        await until(lambda: asked("alice") == 1)
        assert asked("mallory") == PLACES_OF_ONE
        hook.held.set()
        assert await alice == 200 and await secrets == 403
        assert await asyncio.gather(*flood) == [403] * len(flood)


async def test_a_question_that_waits_too_long_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings, "LONGEST_WAIT", 0.0)
    async with server(tmp_path) as (api, hook):
        hook.held.clear()
        flood = [
            asyncio.create_task(api.request("GET", f"/x{number}", user=("mallory", ())))
            for number in range(PLACES_OF_ONE)
        ]
        await until(lambda: len(hook.at("/access")) == PLACES_OF_ONE)
        answer = await api.request("GET", SECRETS, user=("mallory", ()))
        assert answer.status == 429 and answer.headers["Retry-After"] == "1"
        assert answer.json["message"].startswith("too many requests wait for a webhook")
        hook.held.set()
        await asyncio.gather(*flood)


@pytest.mark.parametrize("encoding", ["gzip", "identity"])
async def test_an_answer_is_read_to_a_limit_also_when_it_is_decompressed(tmp_path: Path, encoding: str) -> None:
    authority = https.authority(tmp_path, "reviewer")
    whole = b" " * (64 << 20)
    sent = gzip.compress(whole) if encoding == "gzip" else whole
    accepted = list[str | None]()

    async def answer(request: web.Request) -> web.StreamResponse:
        accepted.append(request.headers.get("Accept-Encoding"))
        response = web.StreamResponse(headers={"Content-Encoding": encoding, "Content-Type": "application/json"})
        await response.prepare(request)
        with contextlib.suppress(ConnectionError):
            for start in range(0, len(sent), 1 << 16):
                await response.write(sent[start : start + (1 << 16)])
        return response

    application = web.Application()
    application.router.add_post("/{path:.*}", answer)
    made = Reviewer(tmp_path, authority)
    async with https.served(application, tmp_path, "reviewer") as made.port:
        client = ReviewClient(made.kubeconfig("/tokens"), SYSTEM)
        try:
            tracemalloc.start()
            before, _ = tracemalloc.get_traced_memory()
            with pytest.raises(ReviewFailed, match="is longer than"):
                await client.send(b"{}")
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
            await client.close()
    assert peak - before < 16 << 20
    assert accepted == ["identity"]
