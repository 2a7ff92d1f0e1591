"""Legacy token cleaner: deletes automatically created token Secrets that have not been used for a year.

Before v1.24 every ServiceAccount got such a Secret, listed in its `secrets`; only those are processed, never manually created
ones. A Secret that was not used for the period is first labelled (`kubernetes.io/legacy-token-invalid-since`), and its token
is rejected from then on; after another period it is deleted. Secrets that a pod mounts are kept, and all of them until uses
have been recorded for a whole period.
Upstream: pkg/controller/serviceaccount/legacy_serviceaccount_token_cleaner.go.
"""

from __future__ import annotations

import asyncio
import logging
from datetime import UTC, date, datetime, timedelta

from control.auth.references import pod_secrets
from control.auth.secret_tokens import INVALID_SINCE, LAST_USED, NAME_ANNOTATION, SECRET_TYPE, TRACKING, UID_ANNOTATION
from control.controllers.concurrent_requests import for_each
from control.controllers.context import Context
from kube import serialize
from kube.api import core_v1
from kube.errors import StatusError
from kube.indexer import by_namespace
from kube.object_names import name_of, namespace_of

log = logging.getLogger(__name__)
YEAR = 365 * 24 * 3600.0
"""Upstream's --legacy-service-account-token-clean-up-period, in seconds."""
EVERY = 24 * 3600.0


def fate(secret: core_v1.Secret, account: core_v1.ServiceAccount | None, now: datetime, period: float) -> str:
    """Return the action for a token Secret that no pod mounts: keep, mark or delete."""
    metadata, limit = secret.metadata, now - timedelta(seconds=period)
    day = f"{limit:%Y-%m-%d}"
    if secret.type != SECRET_TYPE or metadata.deletion_timestamp is not None:
        return "keep"
    if datetime.fromisoformat(metadata.creation_timestamp or now.isoformat()) >= limit:
        return "keep"
    last = metadata.labels.get(LAST_USED)
    if last is not None and (not _is_day(last) or last >= day):
        return "keep"
    uid = metadata.annotations.get(UID_ANNOTATION)
    if account is None or (uid and uid != account.metadata.uid):
        return "keep"
    if all(reference.name != metadata.name for reference in account.secrets):
        return "keep"  # somebody made it
    invalid = metadata.labels.get(INVALID_SINCE, "")
    if not _is_day(invalid):
        return "mark"
    return "keep" if invalid >= day else "delete"


def tracked_long_enough(since: str, now: datetime, period: float) -> bool:
    """Return whether uses of tokens have been recorded for a whole period; False if `since` is not a date."""
    if not _is_day(since):
        return False
    return now >= datetime.fromisoformat(since).replace(tzinfo=UTC) + timedelta(days=1, seconds=period)


class LegacyTokenCleaner:
    """Checks the token Secrets once a day."""

    def __init__(self, context: Context, period: float = YEAR) -> None:
        self._client, self._clock, self._period = context.client, context.clock, period
        self._secrets = context.informers.filtered(core_v1.Secret, field_selector=f"type={SECRET_TYPE}")
        self._accounts = context.informers.of(core_v1.ServiceAccount)
        self._pods = context.informers.of(core_v1.Pod)
        self._pods.add_index("namespace", by_namespace)

    async def run(self) -> None:
        """Work until cancelled."""
        while True:
            try:
                await self.clean()
            except (StatusError, ExceptionGroup):
                log.warning("checking old service account tokens failed", exc_info=True)
            await self._clock.sleep(EVERY)

    async def clean(self) -> None:
        """Check all token Secrets once."""
        now = self._clock.now().astimezone(UTC)
        tracking = await self._client.get(core_v1.ConfigMap, TRACKING, "kube-system")
        if not tracked_long_enough(tracking.data.get("since", ""), now, self._period):
            return
        mounted: dict[str, set[str]] = {}
        unused: list[tuple[str, core_v1.Secret]] = []
        for secret in self._secrets.list():
            name, namespace = name_of(secret), namespace_of(secret)
            account = self._accounts.get(f"{namespace}/{secret.metadata.annotations.get(NAME_ANNOTATION, '')}")
            what = fate(secret, account, now, self._period)
            if what == "keep":
                continue
            if namespace not in mounted:
                mounted[namespace] = await self._mounted(namespace)
            if name not in mounted[namespace]:
                unused.append((what, secret))
        await for_each(unused, lambda each: self._do(*each, now))

    async def _mounted(self, namespace: str) -> set[str]:
        """Return the names of the Secrets that the pods of a namespace refer to."""
        found = set[str]()
        for pod in self._pods.by_index("namespace", namespace):
            await asyncio.sleep(0)  # one may be large
            found |= set(pod_secrets(serialize.to_dict(pod.spec)))
        return found

    async def _do(self, what: str, secret: core_v1.Secret, now: datetime) -> None:
        name, namespace = name_of(secret), namespace_of(secret)
        log.info("%s the unused token %s/%s", what, namespace, name)
        try:
            if what == "mark":
                labels = {INVALID_SINCE: f"{now:%Y-%m-%d}"}
                patch = {"metadata": {"uid": secret.metadata.uid, "labels": labels}}
                await self._client.patch(core_v1.Secret, name, namespace, patch)
            else:
                version = secret.metadata.resource_version or ""
                await self._client.delete(core_v1.Secret, name, namespace, resource_version=version)
        except StatusError as error:
            if not error.not_found and not error.replaced:
                log.warning("the token %s/%s: %s", namespace, name, error)


def _is_day(text: str) -> bool:
    try:
        return len(text) == 10 and bool(date.fromisoformat(text))
    except ValueError:
        return False
