"""Manifests of other projects, applied to an API server as their users do, and read back.

Folders and files are arguments: nothing of these projects is in this repository. `apply` returns what was applied and every
difference between what was applied and what the server then has.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import yaml

from kube.json_object import Object
from kube.process import Result
from kube.quantity import canonical
from tests.support.control import ApiUnderTest

Kubectl = Callable[..., Awaitable[Result]]
DEFINITION = "CustomResourceDefinition"
_KUSTOMIZATION = ("kustomization.yaml", "kustomization.yml", "Kustomization")
_BUILD_FILES = frozenset(("Kustomization", "Component"))


class Loader(yaml.CSafeLoader):
    """Reads `=` and times as texts, as kubectl does."""

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {
        first: [(tag, pattern) for tag, pattern in found if not tag.endswith((":value", ":timestamp"))]
        for first, found in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


@dataclass
class Applied:
    """Result of the manifests of one project."""

    kinds: dict[str, int] = field(default_factory=dict)
    differences: list[str] = field(default_factory=list)

    @property
    def summary(self) -> str:
        definitions = self.kinds.get(DEFINITION, 0)
        others = sum(self.kinds.values()) - definitions
        return f"{definitions} definitions, {others} objects of {len(self.kinds) - bool(definitions)} kinds"


def objects(text: str) -> Iterator[Object]:
    """Yield the objects of YAML text, those of Lists one by one; what is no object of an API is left out."""
    for document in yaml.load_all(text, Loader):
        if not isinstance(document, dict) or not document.get("kind") or not document.get("apiVersion"):
            continue
        if document["kind"] in _BUILD_FILES and "metadata" not in document:
            continue
        if document["kind"].endswith("List") and "items" in document:
            yield from document["items"]
        else:
            yield document


async def read(server: ApiUnderTest, path: Path) -> list[Object]:
    """Return the objects of a file, of a kustomization, or of all YAML files below a folder."""
    text = await asyncio.to_thread(_text, path)
    return list(objects(text if text is not None else (await server.kubectl("kustomize", str(path))).stdout))


def _text(path: Path) -> str | None:
    """Return the YAML text of a file or folder, None for a kustomization."""
    if path.is_file():
        return path.read_text()
    if any((path / name).exists() for name in _KUSTOMIZATION):
        return None
    files = sorted(p for p in path.rglob("*") if p.suffix in (".yaml", ".yml"))
    return "\n---\n".join(file.read_text() for file in files)


async def apply(server: ApiUnderTest, paths: Iterable[Path], namespace: str = "default") -> Applied:
    """Apply the manifests twice by `kubectl apply --server-side`; definitions come first and are established."""
    kubectl = partial(server.kubectl, f"--kubeconfig={_kubeconfig(server, namespace)}")
    found = [each for path in paths for each in await read(server, path)]
    result = Applied()
    for each in found:
        result.kinds[each["kind"]] = result.kinds.get(each["kind"], 0) + 1
    for named in {_namespace(each, namespace) for each in found} | {namespace}:
        await server.kubectl("create", "namespace", named, check=False)
    definitions = [each for each in found if each["kind"] == DEFINITION]
    others = [each for each in found if each["kind"] != DEFINITION]
    await _apply(kubectl, definitions)
    names = [f"crd/{each['metadata']['name']}" for each in definitions]
    if names:
        await server.kubectl("wait", "--for=condition=Established", "--timeout=60s", *names)
    await _apply(kubectl, others)
    first = await _read_back(kubectl, found)
    for each, (name, live) in zip(found, first.items(), strict=True):
        result.differences += [f"{name}: {text}" for text in differences(each, live)]
    for part in (definitions, others):
        diff = await kubectl("diff", "--server-side", "-f", "-", input=dump(part), check=False)
        if part and diff.returncode != 0:
            result.differences.append(f"kubectl diff: {diff.stdout or diff.stderr}")
        await _apply(kubectl, part)
    for name, live in (await _read_back(kubectl, found)).items():
        if live["metadata"]["resourceVersion"] != first[name]["metadata"]["resourceVersion"]:
            result.differences.append(f"{name} was changed by the second apply")
    result.differences += [text for each in definitions for text in await _explained(server, each)]
    return result


def dump(found: list[Object]) -> str:
    """Return a document for each object: of a List, kubectl would validate the fields itself and not let the server do it."""
    return "\n".join(json.dumps(each) for each in found)


async def _apply(kubectl: Kubectl, found: list[Object]) -> None:
    if found:
        await kubectl("apply", "--server-side", "-f", "-", input=dump(found), timeout=300)


async def _read_back(kubectl: Kubectl, found: list[Object]) -> dict[str, Object]:
    """Return what the server has, by kind, namespace and name, in the order of what was applied."""
    listed = json.loads((await kubectl("get", "-f", "-", "-o", "json", input=dump(found), timeout=300)).stdout)
    lives = listed["items"] if listed["kind"] == "List" else [listed]
    return {f"{o['kind']} {o['metadata'].get('namespace', '')}/{o['metadata']['name']}": o for o in lives}


async def _explained(server: ApiUnderTest, made: Object) -> list[str]:
    """Return what is wrong with `kubectl explain` of each served version."""
    wrong = []
    spec = made["spec"]
    for version in spec["versions"]:
        if not version.get("served"):
            continue
        target = spec["names"]["plural"], f"--api-version={spec['group']}/{version['name']}"
        found = await server.kubectl("explain", "--recursive", *target, check=False)
        fields = version.get("schema", {}).get("openAPIV3Schema", {}).get("properties", {}).get("spec", {})
        missing = [name for name in fields.get("properties", {}) if f"    {name}\t" not in found.stdout]
        if found.returncode != 0 or missing:
            wrong.append(f"kubectl explain {target[0]} {version['name']}: {found.stderr or f'without {missing}'}")
    return wrong


def differences(applied: Any, live: Any, path: str = "") -> Iterator[str]:
    """Yield the fields of `applied` that `live` has not, or with another value; empty ones may be missing."""
    if isinstance(applied, dict) and isinstance(live, dict):
        for key, value in applied.items():
            where = f"{path}.{key}"
            if where == ".status" or (where == ".stringData" and applied["kind"] == "Secret"):
                continue
            if key in live:
                yield from differences(value, live[key], where)
            elif not _empty(value):
                yield f"{where} is missing"
    elif isinstance(applied, list) and isinstance(live, list) and len(applied) == len(live):
        for index, (one, other) in enumerate(zip(applied, live, strict=True)):
            yield from differences(one, other, f"{path}[{index}]")
    elif applied != live and not (_empty(applied) and _empty(live)) and not _same_quantity(applied, live):
        yield f"{path}: {applied!r} became {live!r}"


def _empty(value: Any) -> bool:
    return value in (None, {}, [], "", 0, False)


def _same_quantity(applied: Any, live: Any) -> bool:
    """Return whether the server has a quantity in its canonical form, as 1 for 1000m."""
    try:
        return isinstance(live, str) and canonical(str(applied)) == live
    except ValueError:
        return False


def _kubeconfig(server: ApiUnderTest, namespace: str) -> Path:
    """Return a kubeconfig with a namespace for objects that name none; kubectl's -n would refuse all others."""
    config = yaml.safe_load(server.kubeconfig().read_text())
    config["contexts"][0]["context"]["namespace"] = namespace
    path = server.directory / f"{namespace}.kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return path


def _namespace(each: Object, namespace: str) -> str:
    return each["metadata"].get("namespace") or namespace
