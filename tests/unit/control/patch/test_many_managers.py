"""Objects with very many field managers: anybody who may write an object may list managers in its managedFields."""

from __future__ import annotations

import time
from datetime import UTC, datetime

import msgspec
import pytest

from control.patch.apply import ApplyConflict, apply, track_update
from control.patch.apply.managers import MAX_MANAGERS
from control.registry.managed import shape_of
from kube.errors import MOST_CAUSES, MOST_TEXT, StatusError
from kube.json_object import Object
from kube.resources import by_path

CONFIG_MAP = shape_of(by_path("", "v1", "configmaps"))
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def config_map(data: dict[str, str], *managers: Object) -> Object:
    metadata: Object = {"name": "a", "namespace": "shop"}
    if managers:
        metadata |= {"uid": "u", "managedFields": list(managers)}
    return {"kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata, "data": data}


def applier(name: str, *keys: str) -> Object:
    fields = {"f:data": {f"f:{key}": {} for key in keys}}
    return {"manager": name, "operation": "Apply", "apiVersion": "v1", "fieldsType": "FieldsV1", "fieldsV1": fields}


def conflict(managers: list[Object], data: dict[str, str]) -> ApplyConflict:
    live = config_map(dict.fromkeys(data, "x"), *managers)
    with pytest.raises(ApplyConflict) as caught:
        apply(live, config_map(data), "me", force=False, schema=CONFIG_MAP, now=NOW)
    return caught.value


def test_a_conflict_with_very_many_managers_is_short_and_quick() -> None:
    keys = [str(key) for key in range(8)]
    begun = time.process_time()
    found = conflict([applier(str(n), *keys) for n in range(8000)], dict.fromkeys(keys, "y"))
    assert time.process_time() - begun < 3
    assert len(found.details["causes"]) == MOST_CAUSES
    assert found.message.startswith('Apply failed with 64000 conflicts: conflicts with "0":\n- .data.0\n')
    assert found.message.endswith(f"\nand {64000 - MOST_CAUSES} more")
    assert len(msgspec.json.encode(found.to_status())) < 3 * MOST_TEXT


def test_a_conflict_with_a_manager_of_a_long_name_is_short() -> None:
    keys = [str(key) for key in range(100)]
    found = conflict([applier("n" * 200_000, *keys)], dict.fromkeys(keys, "y"))
    assert found.message.startswith("Apply failed with 100 conflicts: conflicts with")
    assert len(msgspec.json.encode(found.to_status())) < 3 * MOST_TEXT


def test_removing_a_field_next_to_many_appliers_takes_time_in_proportion() -> None:
    data = {str(key): "" for key in range(40_000)}
    managers = [applier(str(n), str(n)) for n in range(4000)]
    live = config_map(data | {"x": ""}, *managers, applier("me", "x"))
    begun = time.process_time()
    result = apply(live, config_map({}), "me", force=False, schema=CONFIG_MAP, now=NOW)
    assert time.process_time() - begun < 4
    assert result["data"] == data


def test_an_apply_by_one_more_than_the_most_managers_is_refused() -> None:
    live = config_map({"0": "x"}, *(applier(str(n), "0") for n in range(MAX_MANAGERS)))
    with pytest.raises(StatusError, match=r"metadata\.managedFields: Too many") as caught:
        apply(live, config_map({"1": "y"}), "me", force=False, schema=CONFIG_MAP, now=NOW)
    assert caught.value.code == 422
    apply(live, config_map({"0": "x"}), "7", force=False, schema=CONFIG_MAP, now=NOW)


def test_an_update_that_lists_more_than_the_most_managers_is_refused() -> None:
    live = config_map({"0": "x"}, applier("me", "0"))
    managers = [applier(str(n), "0") for n in range(MAX_MANAGERS + 1)]
    for data in ({"0": "x"}, {"0": "x", "1": "x"}):
        new = config_map(data, *managers)
        with pytest.raises(StatusError, match=f"must have at most {MAX_MANAGERS} items"):
            track_update(live, new, "kubectl", "", CONFIG_MAP, NOW)


def test_an_object_that_has_too_many_managers_can_still_be_updated() -> None:
    managers = [applier(str(n), "0") for n in range(MAX_MANAGERS + 5)]
    live = config_map({"0": "x", "1": "x"}, *managers)
    assert track_update(live, config_map({"0": "x", "1": "x"}, *managers), "kubectl", "", CONFIG_MAP, NOW) == managers
    assert len(track_update(live, config_map({"0": "x"}, *managers), "kubectl", "", CONFIG_MAP, NOW)) == len(managers)
