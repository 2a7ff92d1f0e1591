"""Container probes: running one (handlers), judging its results (state), and scheduling (prober)."""

from agent.probes.prober import PodProber

__all__ = ["PodProber"]
