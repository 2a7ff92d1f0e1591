"""kustomize as kubectl has it: bases, overlays, components, generators, patches and replacements, applied with -k."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support import manifests
from tests.support.control import ApiUnderTest, api_server

pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed"),
]
DEPLOYMENT: dict[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "Deployment",
    "metadata": {"name": "web"},
    "spec": {
        "replicas": 1,
        "selector": {"matchLabels": {"app": "web"}},
        "template": {
            "metadata": {"labels": {"app": "web"}},
            "spec": {
                "containers": [
                    {"name": "web", "image": "web:1", "envFrom": [{"configMapRef": {"name": "settings"}}]},
                    {"name": "side", "image": "side:1"},
                ]
            },
        },
    },
}
SERVICE: dict[str, Any] = {
    "apiVersion": "v1",
    "kind": "Service",
    "metadata": {"name": "web"},
    "spec": {"ports": [{"name": "http", "port": 80}]},
}
FILES: dict[str, Any] = {
    "base/deployment.yaml": DEPLOYMENT,
    "base/service.yaml": SERVICE,
    "base/kustomization.yaml": {
        "resources": ["deployment.yaml", "service.yaml"],
        "labels": [{"pairs": {"team": "blue"}, "includeSelectors": True, "includeTemplates": True}],
        "configMapGenerator": [{"name": "settings", "literals": ["colour=red", "size=1"]}],
    },
    "limits/kustomization.yaml": {
        "apiVersion": "kustomize.config.k8s.io/v1alpha1",
        "kind": "Component",
        "patches": [
            {
                "target": {"kind": "Deployment"},
                "patch": json.dumps(
                    [
                        {
                            "op": "add",
                            "path": "/spec/template/spec/containers/0/resources",
                            "value": {"limits": {"cpu": "1"}},
                        }
                    ]
                ),
            }
        ],
    },
    "overlay/kustomization.yaml": {
        "namespace": "shop",
        "namePrefix": "prod-",
        "resources": ["../base", "namespace.yaml"],
        "components": ["../limits"],
        "images": [{"name": "web", "newName": "registry.example/web", "newTag": "2"}],
        "replicas": [{"name": "web", "count": 3}],
        "configMapGenerator": [{"name": "settings", "behavior": "merge", "literals": ["colour=blue"]}],
        "secretGenerator": [{"name": "keys", "literals": ["k=v"], "options": {"disableNameSuffixHash": True}}],
        "patches": [{"path": "patch.yaml"}],
        "replacements": [
            {
                "source": {"kind": "Service", "name": "web", "fieldPath": "spec.ports.0.port"},
                "targets": [
                    {
                        "select": {"kind": "Deployment"},
                        "fieldPaths": ["metadata.annotations.port"],
                        "options": {"create": True},
                    }
                ],
            }
        ],
    },
    "overlay/namespace.yaml": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}},
    "overlay/patch.yaml": {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web"},
        "spec": {"template": {"spec": {"containers": [{"name": "side", "$patch": "delete"}]}}},
    },
}


@pytest.fixture
def overlay(tmp_path: Path) -> Path:
    for name, content in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(yaml.safe_dump(content))
    return tmp_path / "overlay"


async def get(server: ApiUnderTest, *what: str) -> Any:
    return json.loads((await server.kubectl("get", "-n", "shop", *what, "-o", "json")).stdout)


async def test_an_overlay_is_applied_changed_and_deleted(tmp_path: Path, overlay: Path) -> None:
    async with api_server(tmp_path) as server:
        made = (await server.kubectl("apply", "-k", str(overlay))).stdout
        assert "deployment.apps/prod-web created" in made and "namespace/shop created" in made
        deployment = await get(server, "deployment", "prod-web")
        spec = deployment["spec"]["template"]["spec"]
        (container,) = spec["containers"]
        settings = container["envFrom"][0]["configMapRef"]["name"]
        assert (container["image"], container["resources"]) == ("registry.example/web:2", {"limits": {"cpu": "1"}})
        assert deployment["spec"]["replicas"] == 3 and deployment["metadata"]["annotations"]["port"] == "80"
        assert deployment["spec"]["selector"]["matchLabels"] == {"app": "web", "team": "blue"}
        assert (await get(server, "configmap", settings))["data"] == {"colour": "blue", "size": "1"}
        assert (await get(server, "secret", "prod-keys"))["data"] == {"k": "dg=="}
        assert (await get(server, "service", "prod-web"))["spec"]["selector"] == {"team": "blue"}
        again = (await server.kubectl("apply", "-k", str(overlay))).stdout
        assert again.count("unchanged") == len(again.splitlines()) == 5
        assert (await server.kubectl("diff", "-k", str(overlay))).stdout == ""

        changed = {**FILES["overlay/kustomization.yaml"], "replicas": [{"name": "web", "count": 5}]}
        changed["configMapGenerator"] = [{"name": "settings", "behavior": "merge", "literals": ["colour=green"]}]
        (overlay / "kustomization.yaml").write_text(yaml.safe_dump(changed))
        diff = await server.kubectl("diff", "-k", str(overlay), check=False)
        assert diff.returncode == 1 and "-  replicas: 3" in diff.stdout and "+  replicas: 5" in diff.stdout
        labels = ("--prune", "-l", "team=blue", "--prune-allowlist=core/v1/ConfigMap")
        applied = (await server.kubectl("apply", "-k", str(overlay), *labels)).stdout
        assert "deployment.apps/prod-web configured" in applied and f"configmap/{settings} pruned" in applied
        container = (await get(server, "deployment", "prod-web"))["spec"]["template"]["spec"]["containers"][0]
        assert (await get(server, "configmap", container["envFrom"][0]["configMapRef"]["name"]))["data"][
            "colour"
        ] == "green"
        await server.kubectl("delete", "-k", str(overlay), "--wait=false")
        assert (await get(server, "deployments,services,secrets"))["items"] == []


async def test_an_overlay_is_applied_by_the_server_and_read_back(tmp_path: Path, overlay: Path) -> None:
    async with api_server(tmp_path) as server:
        found = await manifests.apply(server, [overlay], "shop")
    assert found.differences == []
    assert found.summary == "0 definitions, 5 objects of 5 kinds"
