"""The storage class of claims and volumes, in the field or in the annotation of old times, and its changes."""

from __future__ import annotations

import copy

import pytest

from control.admission.quota_claims import volume_usage
from control.registry.core.claim_spec import class_of
from control.registry.core.persistentvolumeclaim import PersistentVolumeClaimStrategy
from kube import resources, serialize, volume_binding
from kube.api import core_v1
from kube.json_object import Object
from kube.volume_binding import CLASS_ANNOTATION

CLASSES = [(None, None, ""), (None, "gold", "gold"), ("old", "gold", "old"), ("", "gold", ""), ("", None, "")]
IMMUTABLE = f'metadata.annotations.{CLASS_ANNOTATION}: Invalid value: "{{}}": field is immutable'


def claim(annotation: str | None, name: str | None) -> Object:
    annotations = {} if annotation is None else {CLASS_ANNOTATION: annotation}
    spec: Object = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    if name is not None:
        spec["storageClassName"] = name
    return {"metadata": {"name": "c", "namespace": "shop", "annotations": annotations}, "spec": spec}


@pytest.mark.parametrize(("annotation", "name", "found"), CLASSES)
def test_quotas_the_binder_and_tables_agree_on_the_class(annotation: str | None, name: str | None, found: str) -> None:
    obj = claim(annotation, name)
    typed = serialize.convert(obj, core_v1.PersistentVolumeClaim)
    charged = {key.partition(".storageclass")[0] for key in volume_usage(obj) if ".storageclass" in key}
    assert class_of(obj) == volume_binding.class_of(typed) == found
    assert charged == ({found} if found else set())


def test_the_annotation_of_a_volume_goes_first_too() -> None:
    volume = core_v1.PersistentVolume(spec=core_v1.PersistentVolumeSpec(storage_class_name="gold"))
    volume.metadata.annotations[CLASS_ANNOTATION] = ""
    assert volume_binding.class_of(volume) == ""


def changes(old: tuple[str | None, str | None], new: tuple[str | None, str | None]) -> list[str]:
    strategy = PersistentVolumeClaimStrategy(resources.of(core_v1.PersistentVolumeClaim))
    problems = strategy.validate_update(claim(*new), copy.deepcopy(claim(*old)))
    return [str(problem).splitlines()[0] for problem in problems]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ((None, "gold"), ("silver", "gold")),
        (("gold", None), ("silver", None)),
        (("gold", None), (None, None)),
        ((None, None), ("gold", None)),
        (("gold", None), ("silver", "gold")),
        (("gold", "gold"), (None, "gold")),
    ],
)
def test_the_annotation_is_immutable(old: tuple[str | None, str | None], new: tuple[str | None, str | None]) -> None:
    assert changes(old, new)[0] == IMMUTABLE.format(new[0] or "")


@pytest.mark.parametrize(("old", "new"), [((None, "gold"), ("", "gold")), (("", "gold"), (None, "gold"))])
def test_an_empty_annotation_cannot_change_the_class(
    old: tuple[str | None, str | None], new: tuple[str | None, str | None]
) -> None:
    assert changes(old, new) == [IMMUTABLE.format("")]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (("gold", None), ("gold", "gold")),
        (("gold", None), (None, "gold")),
        ((None, None), (None, "gold")),
        ((None, None), ("", None)),
        (("gold", "silver"), ("gold", "silver")),
    ],
)
def test_a_claim_may_get_the_class_that_it_has_in_its_field(
    old: tuple[str | None, str | None], new: tuple[str | None, str | None]
) -> None:
    assert changes(old, new) == []


def test_a_claim_gets_no_other_class_than_that_of_its_annotation() -> None:
    (problem,) = changes(("gold", None), ("gold", "silver"))
    assert problem.startswith("spec: Forbidden: spec is immutable after creation")
