"""Node-pressure eviction: pods are evicted when memory, disk or process IDs run low, before the kernel has to choose."""

from agent.eviction.manager import Eviction

__all__ = ["Eviction"]
