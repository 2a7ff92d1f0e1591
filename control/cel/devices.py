"""Variables of device selectors: only `device`, with its driver, attributes and capacity.

Attributes and capacities are looked up by domain and then by name; a name without a domain belongs to the driver's own domain.
A domain without attributes of a device is an empty map and not an error, so that `device.attributes["x"].?y` and has() work on
every device. Upstream: dynamic-resource-allocation/cel.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from control.cel import functions
from control.cel.errors import CompileError, Issue, no_overload
from control.cel.frame import Frame
from control.cel.kubernetes import quantity, semver
from control.cel.program import Declarations, Program, compile
from control.cel.types import BOOL, STRING, Type, map_of, object_of, parse
from control.cel.values import Optional
from kube.api import resource_v1
from kube.bounded_cache import bounded_cache

COST_LIMIT = 1_000_000
"""Cost limit of one selector on one device (CELSelectorExpressionMaxCost)."""
MAX_LENGTH = 10 * 1024
"""Bytes of a selector at most."""
_MOST, _LONGEST = 32, 64
"""Attributes and capacities of a device together; characters of an attribute's value."""


class Domains(dict[str, dict[str, Any]]):
    """Values by domain and name; a domain that is not there is empty."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


def _index(a: Any, b: Any) -> Any:
    if type(a) is not Domains:
        return functions.index(a, b)
    if type(b) is not str:
        raise no_overload()
    return a[b]


def _optional_index(a: Any, b: Any) -> Any:
    return Optional(_index(a, b)) if type(a) is Domains else functions.optional_index(a, b)


def _contained(frame: Frame, a: Any, b: Any) -> Any:
    return type(a) is str and a in b.keys() if type(b) is Domains else functions.contained(frame, a, b)


_KEY = Type("string", size=_LONGEST)
_DEVICE = object_of(
    {
        "driver": _KEY,
        "attributes": map_of(STRING, map_of(_KEY, Type("dyn", size=_LONGEST), size=_MOST), size=_MOST),
        "capacity": map_of(STRING, map_of(_KEY, parse("quantity"), size=_MOST), size=_MOST),
        "allowMultipleAllocations": BOOL,
    },
    "kubernetes.DRADevice",
)
_DECLARATIONS = Declarations(
    {"device": _DEVICE}, functions={"_[_]": _index, "_[?_]": _optional_index, "@in": _contained}
)


@bounded_cache(256, longest=10 * 1024)
def compile_selector(expression: str) -> Program:
    """Compile a selector; raises CompileError if it is wrong or does not give a bool.

    Raises TooMuchHere if that costs too much on the event loop.
    """
    program = compile(expression, _DECLARATIONS)
    if program.result.kind not in ("bool", "dyn"):
        text = f"must evaluate to bool or the unknown type, not {program.result}"
        raise SelectorTypeError(expression, [Issue(0, text)])
    return program


class SelectorTypeError(CompileError):
    """A selector that compiles but is no condition; its text is the plain sentence."""

    def __str__(self) -> str:
        return self.issues[0].message


def device_value(driver: str, device: resource_v1.Device) -> dict[str, Any]:
    """Return the value of `device`; raises EvaluationError for versions and quantities that are none."""
    attributes, capacity = Domains(), Domains()
    for name, attribute in device.attributes.items():
        domain, own = split_name(name, driver)
        attributes.setdefault(domain, {})[own] = _attribute(attribute)
    for name, amount in device.capacity.items():
        domain, own = split_name(name, driver)
        capacity.setdefault(domain, {})[own] = quantity(str(amount.value))
    shared = bool(device.allow_multiple_allocations)
    return {
        "driver": driver,
        "attributes": attributes,
        "capacity": capacity,
        "allowMultipleAllocations": shared,
    }


def split_name(name: str, driver: str) -> tuple[str, str]:
    """Return (domain, name) of an attribute or capacity; without a domain it is the driver's."""
    domain, slash, own = name.partition("/")
    return (domain, own) if slash else (driver, name)


def attribute_of(attributes: Mapping[str, resource_v1.DeviceAttribute], name: str, driver: str) -> object | None:
    """Return what identifies the value of an attribute, None if the device has none of that name."""
    found = attributes.get(name)
    if found is None:
        domain, own = split_name(name, driver)
        found = attributes.get(own) if domain == driver else None
    if found is None:
        return None
    values = (("int", found.int_), ("bool", found.bool_), ("string", found.string), ("version", found.version))
    return next((pair for pair in values if pair[1] is not None), None)


def _attribute(found: resource_v1.DeviceAttribute) -> Any:
    if found.int_ is not None:
        return found.int_
    if found.bool_ is not None:
        return found.bool_
    if found.string is not None:
        return found.string
    if found.version is not None:
        return semver(found.version)
    return found.ints or found.bools or found.strings or [semver(version) for version in found.versions]
