"""Create, read, update, delete over the wire: status codes, reasons and messages as upstream's clients see them."""

import json
import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.api_objects import CONFIGMAPS, DEPLOYMENTS, PODS, config_map, deployment, pod, status
from tests.support.control import ApiUnderTest, api_server

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ApiUnderTest]:
    async with api_server(tmp_path_factory.mktemp("api")) as api:
        account = {"metadata": {"name": "default"}}
        await api.request("POST", "/api/v1/namespaces/default/serviceaccounts", account)
        yield api


# -- create ---------------------------------------------------------------------------------------------------------------
async def test_create_answers_201_with_system_fields(server: ApiUnderTest) -> None:
    answer = await server.request("POST", CONFIGMAPS, config_map("born", metadata={"labels": {"x": "y"}}))
    assert answer.status == 201
    meta = answer.json["metadata"]
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", meta["uid"])
    assert meta["resourceVersion"].isdigit() and meta["namespace"] == "default"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ", meta["creationTimestamp"])
    assert (
        answer.json["apiVersion"] == "v1" and answer.json["kind"] == "ConfigMap" and answer.json["data"] == {"a": "1"}
    )
    assert "generation" not in meta
    got = await server.request("GET", f"{CONFIGMAPS}/born")
    assert got.status == 200 and got.json == answer.json


async def test_system_fields_of_a_clients_object_are_replaced(server: ApiUnderTest) -> None:
    claimed = {"uid": "mine", "creationTimestamp": "2001-01-01T00:00:00Z", "deletionTimestamp": "2001-01-01T00:00:00Z"}
    answer = await server.request("POST", CONFIGMAPS, config_map("claims", metadata={**claimed, "generation": 7}))
    meta = answer.json["metadata"]
    assert meta["uid"] != "mine" and not meta["creationTimestamp"].startswith("2001")
    assert "deletionTimestamp" not in meta and "generation" not in meta


async def test_a_deployment_gets_defaults_and_generation_1_and_no_status(server: ApiUnderTest) -> None:
    obj = deployment("defaults") | {"status": {"replicas": 9}}
    answer = await server.request("POST", DEPLOYMENTS, obj)
    assert answer.status == 201
    assert answer.json["metadata"]["generation"] == 1
    assert answer.json["spec"]["replicas"] == 1 and answer.json["spec"]["strategy"]["type"] == "RollingUpdate"
    assert not answer.json.get("status", {}).get("replicas")


async def test_the_same_name_twice_is_409_already_exists(server: ApiUnderTest) -> None:
    await server.request("POST", CONFIGMAPS, config_map("twice"))
    answer = await server.request("POST", CONFIGMAPS, config_map("twice"))
    assert status(answer) == (409, "AlreadyExists", 'configmaps "twice" already exists')
    assert answer.json["details"] == {"name": "twice", "kind": "configmaps"}


async def test_generate_name_adds_five_letters(server: ApiUnderTest) -> None:
    names = set()
    for _ in range(5):
        body = {"metadata": {"generateName": "made-"}}
        answer = await server.request("POST", CONFIGMAPS, body)
        assert answer.status == 201
        names.add(answer.json["metadata"]["name"])
        assert answer.json["metadata"]["generateName"] == "made-"
    assert len(names) == 5 and all(re.fullmatch("made-[bcdfghjklmnpqrstvwxz2456789]{5}", n) for n in names)


async def test_a_name_is_required(server: ApiUnderTest) -> None:
    answer = await server.request("POST", CONFIGMAPS, {"metadata": {}})
    assert answer.status == 422 and answer.json["reason"] == "Invalid"
    assert (
        'ConfigMap "" is invalid: metadata.name: Required value: name or generateName is required'
        in answer.json["message"]
    )


async def test_bad_names_and_labels_are_422_with_a_cause_each(server: ApiUnderTest) -> None:
    bad = config_map("Bad_Name", metadata={"labels": {"a b": "c"}, "finalizers": ["x y"]})
    answer = await server.request("POST", CONFIGMAPS, bad)
    code, reason, message = status(answer)
    assert (code, reason) == (422, "Invalid")
    assert 'metadata.name: Invalid value: "Bad_Name": a lowercase RFC 1123 subdomain must consist of' in message
    fields = [cause["field"] for cause in answer.json["details"]["causes"]]
    assert fields[0] == "metadata.name" and "metadata.labels" in fields and "metadata.finalizers" in fields
    assert (await server.request("GET", f"{CONFIGMAPS}/Bad_Name")).status == 404


async def test_namespace_of_body_and_url_must_agree(server: ApiUnderTest) -> None:
    answer = await server.request("POST", CONFIGMAPS, config_map("there", metadata={"namespace": "kube-system"}))
    message = "the namespace of the provided object does not match the namespace sent on the request"
    assert status(answer) == (400, "BadRequest", message)


async def test_a_namespace_that_is_not_there_is_404(server: ApiUnderTest) -> None:
    answer = await server.request("POST", "/api/v1/namespaces/nowhere/configmaps", config_map("x"))
    assert status(answer) == (404, "NotFound", 'namespaces "nowhere" not found')


async def test_resource_version_cannot_be_set_on_create(server: ApiUnderTest) -> None:
    body = config_map("rv", metadata={"resourceVersion": "5"})
    answer = await server.request("POST", CONFIGMAPS, body)
    assert answer.status == 500
    assert answer.json["message"] == "resourceVersion should not be set on objects to be created"
    assert (await server.request("POST", f"{CONFIGMAPS}?dryRun=All", body)).status == 201, "only the store refuses it"


async def test_dry_run_stores_nothing_and_answers_as_if(server: ApiUnderTest) -> None:
    answer = await server.request("POST", f"{CONFIGMAPS}?dryRun=All", config_map("dry"))
    assert answer.status == 201 and answer.json["metadata"]["uid"] and "resourceVersion" not in answer.json["metadata"]
    assert (await server.request("GET", f"{CONFIGMAPS}/dry")).status == 404
    bad = await server.request("POST", f"{CONFIGMAPS}?dryRun=Some", config_map("dry"))
    assert bad.status == 422 and "dryRun: Unsupported value" in bad.json["message"]


# -- update ---------------------------------------------------------------------------------------------------------------
async def test_update_replaces_and_conflicts_by_resource_version(server: ApiUnderTest) -> None:
    made = (await server.request("POST", CONFIGMAPS, config_map("put"))).json
    made["data"] = {"b": "2"}
    first = await server.request("PUT", f"{CONFIGMAPS}/put", made)
    assert first.status == 200 and first.json["data"] == {"b": "2"}
    assert int(first.json["metadata"]["resourceVersion"]) > int(made["metadata"]["resourceVersion"])
    second = await server.request("PUT", f"{CONFIGMAPS}/put", made)
    assert status(second) == (
        409,
        "Conflict",
        'Operation cannot be fulfilled on configmaps "put": the object has been modified; please apply your changes to the '
        "latest version and try again",
    )
    free = await server.request("PUT", f"{CONFIGMAPS}/put", config_map("put", data={"c": "3"}))
    assert free.status == 200 and free.json["data"] == {"c": "3"}
    assert free.json["metadata"]["uid"] == made["metadata"]["uid"]


async def test_an_update_that_changes_nothing_writes_nothing(server: ApiUnderTest) -> None:
    made = (await server.request("POST", CONFIGMAPS, config_map("same"))).json
    again = await server.request("PUT", f"{CONFIGMAPS}/same", made)
    assert again.json["metadata"]["resourceVersion"] == made["metadata"]["resourceVersion"]


async def test_update_checks_names_uids_and_immutable_fields(server: ApiUnderTest) -> None:
    made = (await server.request("POST", CONFIGMAPS, config_map("who"))).json
    answer = await server.request("PUT", f"{CONFIGMAPS}/other", made)
    output = "the name of the object (who) does not match the name on the URL (other)"
    assert status(answer) == (400, "BadRequest", output)
    answer = await server.request("PUT", f"{CONFIGMAPS}/missing", config_map("missing"))
    assert status(answer)[:2] == (404, "NotFound")
    other = json.loads(json.dumps(made))
    other["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    answer = await server.request("PUT", f"{CONFIGMAPS}/who", other)
    assert answer.status == 409 and "Precondition failed: UID in precondition: 00000000" in answer.json["message"]
    for kind in ("merge-patch", "strategic-merge-patch"):
        headers = {"Content-Type": f"application/{kind}+json"}
        answer = await server.request(
            "PATCH", f"{CONFIGMAPS}/who", {"metadata": {"uid": other["metadata"]["uid"]}}, headers=headers
        )
        output = f'metadata.uid: Invalid value: "{other["metadata"]["uid"]}": field is immutable'
        assert status(answer) == (422, "Invalid", f'ConfigMap "who" is invalid: {output}')


async def test_status_and_spec_are_changed_through_their_own_subresources(server: ApiUnderTest) -> None:
    made = (await server.request("POST", DEPLOYMENTS, deployment("parts"))).json
    made["spec"]["replicas"] = 5
    made["status"] = {"replicas": 3, "observedGeneration": 1}
    by_main = (await server.request("PUT", f"{DEPLOYMENTS}/parts", made)).json
    assert by_main["spec"]["replicas"] == 5 and not by_main["status"].get("replicas")
    assert by_main["metadata"]["generation"] == 2
    by_main["spec"]["replicas"] = 7
    by_main["status"] = {"replicas": 3, "observedGeneration": 2}
    by_status = (await server.request("PUT", f"{DEPLOYMENTS}/parts/status", by_main)).json
    assert by_status["spec"]["replicas"] == 5 and by_status["status"]["replicas"] == 3
    assert by_status["metadata"]["generation"] == 2
    assert (await server.request("GET", f"{DEPLOYMENTS}/parts/status")).json == by_status


async def test_a_lease_is_created_by_put(server: ApiUnderTest) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases/put-made"
    body = {"metadata": {"name": "put-made"}, "spec": {"holderIdentity": "me"}}
    assert (await server.request("PUT", path, body)).status == 201
    assert (await server.request("GET", path)).json["spec"]["holderIdentity"] == "me"


# -- delete ---------------------------------------------------------------------------------------------------------------
async def test_delete_answers_a_status_and_the_object_is_gone(server: ApiUnderTest) -> None:
    made = (await server.request("POST", CONFIGMAPS, config_map("gone"))).json
    answer = await server.request("DELETE", f"{CONFIGMAPS}/gone")
    assert answer.status == 200 and answer.json["status"] == "Success"
    assert answer.json["details"] == {"name": "gone", "kind": "configmaps", "uid": made["metadata"]["uid"]}
    assert (await server.request("GET", f"{CONFIGMAPS}/gone")).status == 404
    assert status(await server.request("DELETE", f"{CONFIGMAPS}/gone"))[:2] == (404, "NotFound")


async def test_delete_preconditions(server: ApiUnderTest) -> None:
    made = (await server.request("POST", CONFIGMAPS, config_map("guarded"))).json
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "preconditions": {"uid": "another"}}
    answer = await server.request("DELETE", f"{CONFIGMAPS}/guarded", options)
    output = f"Precondition failed: UID in precondition: another, UID in object meta: {made['metadata']['uid']}"
    assert status(answer) == (409, "Conflict", f'Operation cannot be fulfilled on configmaps "guarded": {output}')
    options["preconditions"] = {"resourceVersion": "1"}
    answer = await server.request("DELETE", f"{CONFIGMAPS}/guarded", options)
    assert answer.status == 409 and "ResourceVersion in precondition: 1" in answer.json["message"]
    dry = await server.request("DELETE", f"{CONFIGMAPS}/guarded?dryRun=All")
    assert dry.status == 200 and (await server.request("GET", f"{CONFIGMAPS}/guarded")).status == 200


async def test_finalizers_hold_an_object_until_the_last_is_gone(server: ApiUnderTest) -> None:
    await server.request("POST", CONFIGMAPS, config_map("held", metadata={"finalizers": ["example.com/hold"]}))
    answer = await server.request("DELETE", f"{CONFIGMAPS}/held")
    assert answer.status == 200 and answer.json["metadata"]["deletionTimestamp"]
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 0
    held = (await server.request("GET", f"{CONFIGMAPS}/held")).json
    more = json.loads(json.dumps(held))
    more["metadata"]["finalizers"].append("example.com/more")
    refused = await server.request("PUT", f"{CONFIGMAPS}/held", more)
    assert refused.status == 422
    assert "no new finalizers can be added if the object is being deleted" in refused.json["message"]
    held["metadata"]["finalizers"] = []
    assert (await server.request("PUT", f"{CONFIGMAPS}/held", held)).status == 200
    assert (await server.request("GET", f"{CONFIGMAPS}/held")).status == 404


@pytest.mark.parametrize(("policy", "finalizer"), [("Foreground", "foregroundDeletion"), ("Orphan", "orphan")])
async def test_propagation_becomes_a_finalizer(server: ApiUnderTest, policy: str, finalizer: str) -> None:
    name = policy.lower()
    await server.request("POST", DEPLOYMENTS, deployment(name))
    options = {"kind": "DeleteOptions", "apiVersion": "v1", "propagationPolicy": policy}
    answer = await server.request("DELETE", f"{DEPLOYMENTS}/{name}", options)
    assert answer.status == (202 if policy == "Foreground" else 200)
    assert answer.json["metadata"]["finalizers"] == [finalizer]
    assert answer.json["metadata"]["generation"] == 2


@pytest.mark.parametrize("policy", ["Foreground", "Orphan"])
@pytest.mark.parametrize("group", ["/api/v1", "/apis/events.k8s.io/v1"])
async def test_an_event_is_deleted_at_once_with_every_policy(server: ApiUnderTest, group: str, policy: str) -> None:
    about = {"kind": "Pod", "namespace": "default", "name": "p"}
    event = {"metadata": {"name": f"e-{policy.lower()}"}, "involvedObject": about, "reason": "R", "type": "Normal"}
    made = await server.request("POST", "/api/v1/namespaces/default/events", event)
    assert made.status == 201, made.json
    path = f"{group}/namespaces/default/events/e-{policy.lower()}"
    answer = await server.request("DELETE", f"{path}?propagationPolicy={policy}")
    assert (answer.status, answer.json["kind"]) == (200, "Status")
    assert (await server.request("GET", path)).status == 404


async def test_jobs_and_replication_controllers_leave_their_pods_unless_a_policy_is_named(server: ApiUnderTest) -> None:
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]},
    }
    job = {"metadata": {"name": "leaves"}, "spec": {"template": template}}
    always = {**template, "spec": {**template["spec"], "restartPolicy": "Always"}}
    controller = {"metadata": {"name": "leaves"}, "spec": {"replicas": 0, "template": always}}
    warning = "child pods are preserved by default when jobs are deleted"
    for path, obj, warned in (
        ("/apis/batch/v1/namespaces/default/jobs", job, True),
        ("/api/v1/namespaces/default/replicationcontrollers", controller, False),
    ):
        assert (await server.request("POST", path, obj)).status == 201
        answer = await server.request("DELETE", f"{path}/leaves")
        assert answer.json["metadata"]["finalizers"] == ["orphan"]
        assert (warning in answer.headers.get("Warning", "")) is warned
        assert (await server.request("POST", path, {**obj, "metadata": {"name": "goes"}})).status == 201
        answer = await server.request("DELETE", f"{path}/goes?propagationPolicy=Background")
        assert answer.json["kind"] == "Status" or not answer.json["metadata"].get("finalizers")
        assert warning not in answer.headers.get("Warning", "")


async def test_a_node_is_not_created_with_a_swap_of_zero_bytes(server: ApiUnderTest) -> None:
    node = {"metadata": {"name": "swapless"}, "status": {"nodeInfo": {"swap": {"capacity": 0}}}}
    answer = await server.request("POST", "/api/v1/nodes", node)
    assert answer.status == 422
    assert "metadata.nodeSwapStatus.capacity: Invalid value: 0: must be greater than zero" in answer.json["message"]
    node["status"] = {"nodeInfo": {"swap": {"capacity": 4096}}}
    assert (await server.request("POST", "/api/v1/nodes", node)).status == 201


async def test_contradicting_delete_options_are_422(server: ApiUnderTest) -> None:
    options = {"orphanDependents": True, "propagationPolicy": "Background"}
    answer = await server.request("DELETE", f"{CONFIGMAPS}/any", options)
    assert (
        answer.status == 422 and "orphanDependents and deletionPropagation cannot be both set" in answer.json["message"]
    )


async def test_a_running_pod_goes_gracefully_and_a_shorter_grace_shortens_it(server: ApiUnderTest) -> None:
    obj = pod("graceful")
    obj["spec"]["nodeName"] = "node-1"
    made = (await server.request("POST", PODS, obj)).json
    answer = await server.request("DELETE", f"{PODS}/graceful")
    assert answer.status == 200 and answer.json["kind"] == "Pod"
    assert answer.json["metadata"]["deletionGracePeriodSeconds"] == 30
    assert answer.json["metadata"]["generation"] == made["metadata"]["generation"] + 1
    again = await server.request("DELETE", f"{PODS}/graceful?gracePeriodSeconds=60")
    assert again.json["metadata"]["deletionGracePeriodSeconds"] == 30
    shorter = await server.request("DELETE", f"{PODS}/graceful?gracePeriodSeconds=5")
    assert shorter.json["metadata"]["deletionGracePeriodSeconds"] == 5
    assert shorter.json["metadata"]["deletionTimestamp"] < answer.json["metadata"]["deletionTimestamp"]
    gone = await server.request("DELETE", f"{PODS}/graceful?gracePeriodSeconds=0")
    assert gone.status == 200 and (await server.request("GET", f"{PODS}/graceful")).status == 404


async def test_a_pod_without_a_node_goes_at_once(server: ApiUnderTest) -> None:
    await server.request("POST", PODS, pod("unplaced"))
    assert (await server.request("DELETE", f"{PODS}/unplaced")).status == 200
    assert (await server.request("GET", f"{PODS}/unplaced")).status == 404


async def test_a_namespace_becomes_terminating_and_takes_nothing_new(server: ApiUnderTest) -> None:
    await server.request("POST", "/api/v1/namespaces", {"metadata": {"name": "leaving"}})
    answer = await server.request("DELETE", "/api/v1/namespaces/leaving")
    assert answer.status == 200 and answer.json["status"]["phase"] == "Terminating"
    refused = await server.request("POST", "/api/v1/namespaces/leaving/configmaps", config_map("late"))
    assert refused.status == 403
    assert "because it is being terminated" in refused.json["message"]
    body = answer.json
    body["spec"]["finalizers"] = []
    assert (await server.request("PUT", "/api/v1/namespaces/leaving/finalize", body)).status == 200
    assert (await server.request("GET", "/api/v1/namespaces/leaving")).status == 404


async def test_delete_collection_takes_what_the_selector_means(server: ApiUnderTest) -> None:
    for name, team in (("c1", "red"), ("c2", "red"), ("c3", "blue")):
        await server.request("POST", CONFIGMAPS, config_map(name, metadata={"labels": {"team": team}}))
    answer = await server.request("DELETE", f"{CONFIGMAPS}?labelSelector=team%3Dred")
    assert answer.status == 200 and [i["metadata"]["name"] for i in answer.json["items"]] == ["c1", "c2"]
    left = await server.request("GET", f"{CONFIGMAPS}?labelSelector=team")
    assert [i["metadata"]["name"] for i in left.json["items"]] == ["c3"]
