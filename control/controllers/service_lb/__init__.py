"""Services of type LoadBalancer without a cloud: the nodes' own addresses serve them."""

from control.controllers.service_lb.controller import ServiceLoadBalancerController

__all__ = ["ServiceLoadBalancerController"]
