"""Legacy token Secrets: those that are kept, marked and deleted."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from control.auth.secret_tokens import INVALID_SINCE, LAST_USED, NAME_ANNOTATION, SECRET_TYPE, UID_ANNOTATION
from control.controllers.configuration import parse
from control.controllers.legacy_tokens import YEAR, fate, tracked_long_enough
from kube.api import core_v1, meta_v1

NOW = datetime(2028, 6, 1, 12, tzinfo=UTC)


def account(*names: str) -> core_v1.ServiceAccount:
    metadata = meta_v1.ObjectMeta(name="web", namespace="shop", uid="u")
    return core_v1.ServiceAccount(metadata=metadata, secrets=[core_v1.ObjectReference(name=name) for name in names])


def secret(
    created: str = "2026-01-01T00:00:00Z", kind: str = SECRET_TYPE, uid: str = "u", **labels: str
) -> core_v1.Secret:
    names = {"used": LAST_USED, "invalid": INVALID_SINCE}
    metadata = meta_v1.ObjectMeta(
        name="web-token-x",
        namespace="shop",
        creation_timestamp=created,
        annotations={NAME_ANNOTATION: "web", UID_ANNOTATION: uid},
        labels={names[name]: day for name, day in labels.items()},
    )
    return core_v1.Secret(metadata=metadata, type=kind)


@pytest.mark.parametrize(
    ("found", "what"),
    [
        (secret(), "mark"),
        (secret(used="2027-05-01"), "mark"),
        (secret(used="2027-06-02"), "keep"),
        (secret(used="sometime"), "keep"),
        (secret(created="2027-06-02T13:00:00Z"), "keep"),
        (secret(invalid="2027-05-01"), "delete"),
        (secret(invalid="2028-05-01"), "keep"),
        (secret(invalid="2027-05-01", used="2028-05-01"), "keep"),
        (secret(invalid="yesterday"), "mark"),
        (secret(kind="Opaque"), "keep"),
        (secret(uid="another"), "keep"),
        (secret(uid=""), "mark"),
    ],
)
def test_a_token_that_nobody_used_for_a_year_is_marked_and_deleted_a_year_later(found, what) -> None:
    assert fate(found, account("web-token-x"), NOW, YEAR) == what


def test_what_somebody_made_is_kept_for_ever() -> None:
    assert fate(secret(), account("another"), NOW, YEAR) == "keep"
    assert fate(secret(), None, NOW, YEAR) == "keep"


def test_nothing_goes_before_uses_were_noted_for_the_whole_period() -> None:
    assert tracked_long_enough("2027-05-31", NOW, YEAR)
    assert not tracked_long_enough("2027-06-02", NOW, YEAR)
    assert not tracked_long_enough("", NOW, YEAR) and not tracked_long_enough("2027-5-1", NOW, YEAR)


def test_the_period_is_a_setting() -> None:
    file = "kind: KubeControllerManagerConfiguration\nlegacySATokenCleaner: {cleanUpPeriod: 720h}"
    assert parse(file).legacy_tokens == 720 * 3600
    assert parse("kind: KubeControllerManagerConfiguration").legacy_tokens == YEAR
