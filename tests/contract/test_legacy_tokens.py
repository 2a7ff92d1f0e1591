"""Tokens in Secrets on a real API server: their use is recorded, and what nobody uses is marked, refused and deleted."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from control.auth.secret_tokens import INVALID_SINCE, LAST_USED, TRACKING
from control.controllers.account_tokens import AccountTokenController
from control.controllers.context import Context
from control.controllers.legacy_tokens import LegacyTokenCleaner
from kube.api import core_v1, meta_v1
from kube.clock import SYSTEM
from tests.support.clock import FakeClock
from tests.support.control import ApiUnderTest, api_server
from tests.support.hollow import eventually, running

ACCOUNT = "kubernetes.io/service-account.name"


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path) as made:
        yield made


@pytest.fixture
async def accounts(server: ApiUnderTest) -> AsyncIterator[Context]:
    """Fill token Secrets, as the controllers do."""
    context = Context(server.client(), FakeClock(SYSTEM.now() + timedelta(days=400)))
    tokens = AccountTokenController(context, (server.directory / "pki" / "sa.key").read_text(), "ca")
    async with running(context.informers.run(), tokens.run()):
        yield context


async def token_secret(context: Context, name: str, made_by_itself: bool = True) -> str:
    """Make a Secret with a token of an account of its own, listed there or not; return the token."""
    client = context.client
    metadata = meta_v1.ObjectMeta(name=name, namespace="default")
    secrets = [core_v1.ObjectReference(name=name)] if made_by_itself else []
    await client.create(core_v1.ServiceAccount(metadata=metadata, secrets=secrets))
    metadata = meta_v1.ObjectMeta(name=name, namespace="default", annotations={ACCOUNT: name})
    await client.create(core_v1.Secret(metadata=metadata, type="kubernetes.io/service-account-token"))

    async def filled() -> str:
        found = await client.get(core_v1.Secret, name, "default")
        return base64.b64decode(found.data.get("token", "")).decode()

    token: str = await eventually(filled)
    return token


async def asks(server: ApiUnderTest, token: str) -> int:
    """Return the status of a request with a token alone."""
    answer = await server.request("GET", "/version", user=("", ()), headers={"Authorization": f"Bearer {token}"})
    return answer.status


async def labels(context: Context, name: str) -> dict[str, str]:
    return (await context.client.get(core_v1.Secret, name, "default")).metadata.labels


async def test_the_day_of_a_tokens_use_is_written_to_its_secret(server: ApiUnderTest, accounts: Context) -> None:
    token = await token_secret(accounts, "used-today")
    assert LAST_USED not in await labels(accounts, "used-today")
    assert await asks(server, token) == 200
    day = f"{SYSTEM.now():%Y-%m-%d}"

    async def noted() -> bool:
        return (await labels(accounts, "used-today")).get(LAST_USED, "") >= day

    await eventually(noted)
    since = await accounts.client.get(core_v1.ConfigMap, TRACKING, "kube-system")
    assert since.data["since"] <= f"{SYSTEM.now():%Y-%m-%d}"


async def test_what_nobody_uses_for_a_year_is_refused_and_a_year_later_deleted(
    server: ApiUnderTest, accounts: Context
) -> None:
    clock, client = accounts.clock, accounts.client
    assert isinstance(clock, FakeClock)
    tokens = {name: await token_secret(accounts, name, name != "by-hand") for name in ("idle", "by-hand", "mounted")}
    volume = core_v1.Volume(name="v", secret=core_v1.SecretVolumeSource(secret_name="mounted"))
    spec = core_v1.PodSpec(containers=[core_v1.Container(name="c", image="i")], volumes=[volume])
    pod = core_v1.Pod(metadata=meta_v1.ObjectMeta(name="mounts", namespace="default"), spec=spec)
    pod.spec.automount_service_account_token = False
    await client.create(core_v1.ServiceAccount(metadata=meta_v1.ObjectMeta(name="default", namespace="default")))
    await client.create(pod)
    cleaner = LegacyTokenCleaner(accounts)
    await accounts.informers.wait_synced()
    for name in tokens:
        await eventually(lambda name=name: accounts.informers.of(core_v1.ServiceAccount).get(f"default/{name}"))
    await eventually(lambda: accounts.informers.of(core_v1.Pod).get("default/mounts"))
    await client.patch(core_v1.ConfigMap, TRACKING, "kube-system", {"data": {"since": "2020-01-01"}})
    async with running(cleaner.run()):

        async def marked() -> bool:
            return INVALID_SINCE in await labels(accounts, "idle")

        async def forgotten() -> bool:
            await clock.advance(24 * 3600)
            found = await client.list(core_v1.Secret, "default")
            return "idle" not in {each.metadata.name for each in found.items}

        await eventually(marked)

        async def refused() -> bool:
            return await asks(server, tokens["idle"]) == 401

        await eventually(refused)
        # Who takes the mark away may use the token again; and it is marked again, as its use is a year ago by that clock.
        await client.patch(core_v1.Secret, "idle", "default", {"metadata": {"labels": {INVALID_SINCE: None}}})

        async def taken() -> bool:
            return await asks(server, tokens["idle"]) == 200

        await eventually(taken)
        await clock.advance(24 * 3600)
        await eventually(marked)
        await clock.advance(366 * 24 * 3600)
        await eventually(forgotten)
    for name in ("by-hand", "mounted"):
        assert INVALID_SINCE not in await labels(accounts, name) and await asks(server, tokens[name]) == 200
