"""Results of the computations of `kube/gateway`, which yield after each step, without interruptions."""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeVar

from kube.api import networking_v1
from kube.gateway import computation, ingress_gateway, ingresses, rules
from kube.gateway.computation import Result, Routes
from kube.gateway.ingress_gateway import Ingresses, IngressResult
from kube.gateway.ingress_hosts import HostOwnership
from kube.gateway.ingresses import IngressRules
from kube.gateway.objects import Gateway, HTTPRoute
from kube.gateway.rules import RouteRules
from kube.gateway.view import View

R = TypeVar("R")


def result(steps: Generator[int, None, R]) -> R:
    """Return the value of a computation."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            found: R = end.value
            return found


def convert_route(route: HTTPRoute, view: View) -> RouteRules:
    """Convert the rules of a route, and resolve its references."""
    return result(rules.convert_in_steps(route, view))


def convert_ingress(ingress: networking_v1.Ingress, view: View) -> IngressRules:
    """Convert one Ingress."""
    return result(ingresses.convert_in_steps(ingress, view))


def compute(gateway: Gateway, routes: Routes, view: View) -> Result:
    """Compute a Gateway of Wherry's class."""
    return result(computation.compute_in_steps(gateway, routes, view))


def compute_ingresses(found: Ingresses, view: View, ownership: HostOwnership) -> IngressResult:
    """Compute the gateway for the Ingresses of Wherry's class."""
    return result(ingress_gateway.compute_in_steps(found, view, ownership))
