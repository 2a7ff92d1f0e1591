"""Eviction: when memory, disk or process IDs run low, pods go before the kernel has to choose."""

from agent.eviction.manager import Eviction

__all__ = ["Eviction"]
