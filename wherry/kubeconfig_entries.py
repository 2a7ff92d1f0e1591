"""The entries of this cluster in a person's kubeconfig: a cluster, a user and a context of one name.

Nodes of YAML are edited, not values: entries of other clusters, unknown keys and the form of every value stay, and a text in
which nothing changes stays as it is. Comments do not survive a change: PyYAML drops them, as `kubectl config` does.

An entry is this cluster's by its CA: an entry of the same name with another CA is never replaced, and this cluster's get a
second name. The current context is set only if there is none: kind, minikube, k3d and the cloud providers' commands switch to
the new cluster, but they run once for a cluster, while `wherry up` runs again after each change and upgrade.
"""

from __future__ import annotations

import base64
import hashlib
import math
from dataclasses import dataclass

import yaml

from kube.kubeconfig import Access, KubeconfigError, yaml_problem

NAME = "wherry"
_PARTS = {"clusters": "cluster", "users": "user", "contexts": "context"}
_KIND = {"apiVersion": "v1", "kind": "Config"}
_SKELETON = (*_KIND, "preferences", "current-context", *_PARTS)


@dataclass(frozen=True, slots=True)
class Own:
    """This cluster as its administrator sees it; data in base64, as in a kubeconfig."""

    server: str
    ca: str
    certificate: str
    key: str


@dataclass(frozen=True, slots=True)
class Merged:
    """A kubeconfig with this cluster's context, "" if it has none."""

    text: str
    context: str
    current: bool
    other_key: bool = False
    """True if the context's user has another private key than the administrator's."""


def own(access: Access) -> Own:
    """Return the entries' data from the access of the administrator's kubeconfig."""
    ca, certificate, key = (
        base64.b64encode(data or b"").decode() for data in (access.ca, access.certificate, access.key)
    )
    return Own(access.server, ca, certificate, key)


def keys(text: str) -> frozenset[str]:
    """Return the private keys of a kubeconfig, in base64. Raises KubeconfigError if the text is none."""
    users = (_inner(entry, "user") for entry in _File(text).entries("users"))
    return frozenset(_key(user) for user in users if user is not None) - {""}


def merged(text: str, cluster: Own, *, add: bool = True, former: frozenset[str] = frozenset()) -> Merged:
    """Return a kubeconfig with the present entries of the cluster.

    Without `add`, only entries that exist are changed, and the certificate and key only of one that has a key in `former`: a
    cluster's CA is public, so its entry does not prove that its owner has ever had the credentials.
    Raises KubeconfigError if the text is no kubeconfig.
    """
    file = _File(text)
    name = file.own_name(cluster) or (file.free_name(cluster) if add else "")
    if not name:
        return Merged(text, "", current=False)
    context = file.context_of(name)
    file.set("clusters", name, {"server": cluster.server, "certificate-authority-data": cluster.ca})
    if add or file.key_of(name) in former:
        file.set("users", name, {"client-certificate-data": cluster.certificate, "client-key-data": cluster.key})
    if not context and add:
        context = name
        file.set("contexts", context, {"cluster": name, "user": name})
    if context and not file.current:
        file.set_current(context)
    return Merged(
        file.text(),
        context,
        current=file.current == context != "",
        other_key=context != "" and file.key_of(name) not in ("", cluster.key),
    )


def without(text: str, cluster: Own) -> str:
    """Return a kubeconfig without the entries of the cluster, "" if nothing else is in it.

    Raises KubeconfigError if the text is no kubeconfig.
    """
    file = _File(text)
    name = file.own_name(cluster)
    if not name:
        return text
    context = file.context_of(name)
    file.remove("contexts", context)
    for part in ("clusters", "users"):
        if not file.refers(_PARTS[part], name):
            file.remove(part, name)
    if context and file.current == context:
        file.set_current("")
    return "" if file.empty else file.text()


class _File:
    """A kubeconfig as nodes of YAML."""

    def __init__(self, text: str) -> None:
        self._original, self._changed = text, False
        try:
            root = yaml.compose(text, Loader=yaml.SafeLoader)
        except yaml.YAMLError as error:
            raise KubeconfigError(f"it is no kubeconfig: {yaml_problem(error)}") from None
        except (ValueError, RecursionError):
            raise KubeconfigError("it is no kubeconfig: invalid YAML") from None
        if root is None or root.tag == _NULL:
            root = yaml.MappingNode(_MAP, [], flow_style=False)
        if not isinstance(root, yaml.MappingNode) or _text(root, "kind") not in ("", "Config"):
            raise KubeconfigError("it is no kubeconfig")
        self._root = root
        for key, value in _KIND.items():
            if not _text(root, key):
                _put(root, key, _scalar(value))
        self._lists = {part: self._list(part) for part in _PARTS}

    @property
    def current(self) -> str:
        """Name of the current context, "" for none."""
        return _text(self._root, "current-context")

    @property
    def empty(self) -> bool:
        """True if there is nothing but what every kubeconfig has."""
        keys = [key.value for key, value in self._root.value if key.value != "preferences" or value.value]
        return (
            all(key in _SKELETON for key in keys)
            and not self.current
            and not any(entries.value for entries in self._lists.values())
        )

    def entries(self, part: str) -> list[yaml.MappingNode]:
        return list(self._lists[part].value)

    def key_of(self, name: str) -> str:
        """Return the private key of a user, "" for none."""
        entry = self._find("users", name)
        inner = _inner(entry, "user") if entry is not None else None
        return _key(inner) if inner is not None else ""

    def text(self) -> str:
        if not self._changed:
            return self._original
        return str(yaml.serialize(self._root, Dumper=yaml.SafeDumper, width=math.inf, allow_unicode=True))

    def own_name(self, cluster: Own) -> str:
        """Return the name of the entries of the cluster, "" if there are none."""
        return next((name for name in _names(cluster) if self._is_own(name, cluster)), "")

    def free_name(self, cluster: Own) -> str:
        """Return a name that no entry has; the second one is this cluster's in any case."""
        first, second = _names(cluster)
        return second if any(self._find(part, first) for part in _PARTS) else first

    def context_of(self, name: str) -> str:
        """Return the context of the entries with a name, "" if there is none. A person may have renamed or changed it."""
        for entry in self._lists["contexts"].value:
            inner, own = _inner(entry, "context"), _text(entry, "name")
            if inner is not None and _text(inner, "cluster") == name and name in (own, _text(inner, "user")):
                return own
        return ""

    def refers(self, key: str, name: str) -> bool:
        """Return whether a context names a cluster or user."""
        inners = (_inner(entry, "context") for entry in self._lists["contexts"].value)
        return any(inner is not None and _text(inner, key) == name for inner in inners)

    def set(self, part: str, name: str, values: dict[str, str]) -> None:
        """Set values of an entry, which is appended if there is none; its other values stay."""
        entry = self._find(part, name)
        if entry is None:
            entry = yaml.MappingNode(_MAP, [(_scalar("name"), _scalar(name))], flow_style=False)
            self._lists[part].value.append(entry)
        inner = _inner(entry, _PARTS[part])
        if inner is None:
            inner = yaml.MappingNode(_MAP, [], flow_style=False)
            _put(entry, _PARTS[part], inner)
        for key, value in values.items():
            if _text(inner, key) != value:
                _put(inner, key, _scalar(value))
                self._changed = True

    def set_current(self, name: str) -> None:
        _put(self._root, "current-context", _scalar(name))
        self._changed = True

    def remove(self, part: str, name: str) -> None:
        entry = self._find(part, name)
        if entry is not None:
            self._lists[part].value.remove(entry)
            self._changed = True

    def _is_own(self, name: str, cluster: Own) -> bool:
        entry, context = self._find("clusters", name), self._find("contexts", name)
        inner = _inner(entry, "cluster") if entry is not None else None
        if inner is None or "".join(_text(inner, "certificate-authority-data").split()) != cluster.ca:
            return False
        leads = _inner(context, "context") if context is not None else None
        return leads is None or _text(leads, "cluster") == name

    def _find(self, part: str, name: str) -> yaml.MappingNode | None:
        return next((entry for entry in self._lists[part].value if name and _text(entry, "name") == name), None)

    def _list(self, part: str) -> yaml.SequenceNode:
        found = _get(self._root, part)
        if found is None or found.tag == _NULL:
            found = yaml.SequenceNode(_SEQ, [], flow_style=False)
            _put(self._root, part, found)
        if not isinstance(found, yaml.SequenceNode) or not all(isinstance(e, yaml.MappingNode) for e in found.value):
            raise KubeconfigError(f"it is no kubeconfig: {part} is no list of entries")
        if not found.value:
            found.flow_style = False
        return found


_NULL, _STR, _MAP, _SEQ = (f"tag:yaml.org,2002:{kind}" for kind in ("null", "str", "map", "seq"))


def _names(cluster: Own) -> tuple[str, str]:
    """Return the name of the entries, and a second one if the first is another's."""
    return NAME, f"{NAME}-{hashlib.sha256(cluster.ca.encode()).hexdigest()[:8]}"


def _key(user: yaml.MappingNode) -> str:
    return "".join(_text(user, "client-key-data").split())


def _scalar(value: str) -> yaml.ScalarNode:
    return yaml.ScalarNode(_STR, value)


def _get(mapping: yaml.MappingNode, key: str) -> yaml.Node | None:
    found = [value for name, value in mapping.value if name.value == key]
    if len(found) > 1:
        raise KubeconfigError(f"it is no kubeconfig: {key} is there twice")
    return found[0] if found else None


def _text(mapping: yaml.MappingNode, key: str) -> str:
    found = _get(mapping, key)
    return str(found.value) if isinstance(found, yaml.ScalarNode) and found.tag != _NULL else ""


def _inner(entry: yaml.MappingNode, key: str) -> yaml.MappingNode | None:
    found = _get(entry, key)
    return found if isinstance(found, yaml.MappingNode) else None


def _put(mapping: yaml.MappingNode, key: str, value: yaml.Node) -> None:
    for number, (name, _) in enumerate(mapping.value):
        if name.value == key:
            mapping.value[number] = (name, value)
            return
    mapping.value.append((_scalar(key), value))
