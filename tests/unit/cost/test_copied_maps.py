"""Maps of one object are not copied once for each of the others, or for each part of it, that a controller goes through."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from control.controllers import manager
from control.controllers.deployment import revisions
from control.controllers.deployment.template import HASH_LABEL
from control.controllers.endpoints import mirrored_slices
from control.controllers.statefulset import identity
from control.controllers.storage_protection import ClaimProtectionController
from kube.api import apps_v1, core_v1, meta_v1
from tests.support.copies import counting

FOLDERS = (f"{Path(manager.__file__).parents[2]}/control/",)
ENTRIES, PARTS = 200, 50


def entries(count: int = ENTRIES) -> dict[str, str]:
    return {f"k{number}": "" for number in range(count)}


def names_of_claims() -> None:
    templates = [core_v1.PersistentVolumeClaim(metadata=meta_v1.ObjectMeta(name=f"v{n}")) for n in range(PARTS)]
    sts = apps_v1.StatefulSet(
        metadata=meta_v1.ObjectMeta(name="s", namespace="n"),
        spec=apps_v1.StatefulSetSpec(
            service_name="x",
            selector=meta_v1.LabelSelector(match_labels=entries()),
            template=core_v1.PodTemplateSpec(),
            volume_claim_templates=templates,
        ),
    )
    claims = [identity.claim_of(sts, template, 0) for template, _ in identity.claim_keys(sts, 0)]
    assert len(claims) == PARTS and claims[0].metadata.labels == entries()


def sets_of_a_deployment() -> None:
    metadata = meta_v1.ObjectMeta(labels=entries() | {HASH_LABEL: "x"})
    template = core_v1.PodTemplateSpec(metadata=metadata)
    spec = apps_v1.DeploymentSpec(selector=meta_v1.LabelSelector(), template=template)
    others = [
        apps_v1.ReplicaSet(
            metadata=meta_v1.ObjectMeta(name=f"r{number}"),
            spec=apps_v1.ReplicaSetSpec(selector=meta_v1.LabelSelector(), template=core_v1.PodTemplateSpec()),
        )
        for number in range(PARTS)
    ]
    assert asyncio.run(revisions.new_set(apps_v1.Deployment(spec=spec), others)) is None


def mirrored_subsets() -> None:
    subsets = [
        core_v1.EndpointSubset(
            addresses=[core_v1.EndpointAddress(ip="192.0.2.1")], ports=[core_v1.EndpointPort(port=number + 1)]
        )
        for number in range(PARTS)
    ]
    metadata = meta_v1.ObjectMeta(name="e", namespace="n", labels=entries(), annotations=entries())
    made, *_ = asyncio.run(mirrored_slices.slices_of(core_v1.Endpoints(metadata=metadata, subsets=subsets)))
    assert len(made) == PARTS and made[0].metadata.annotations == entries()


@pytest.mark.parametrize("work", [names_of_claims, sets_of_a_deployment, mirrored_subsets])
def test_a_map_is_copied_a_few_times_at_the_most(work: Callable[[], None]) -> None:
    copied = list[int]()
    with counting(FOLDERS, lambda file, line, count: copied.append(count)):
        work()
    assert sum(copied) < 4 * (ENTRIES + PARTS)


def test_entries_that_one_line_compares_are_counted() -> None:
    compared = list[tuple[str, int]]()
    finalizers = [f"f{number}" for number in range(ENTRIES)]
    metadata = meta_v1.ObjectMeta(finalizers=finalizers, deletion_timestamp="2026-01-01T00:00:00Z")
    with counting(FOLDERS, lambda file, line, count: compared.append((Path(file).name, count))):
        assert not ClaimProtectionController._is_waiting(
            cast(Any, SimpleNamespace(_finalizer="none")), core_v1.Pod(metadata=metadata)
        )
    assert compared == [("storage_protection.py", ENTRIES)]
