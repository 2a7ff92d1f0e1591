"""Container probes: what to ask (handlers), what the answers mean (state), and when to ask (prober)."""

from agent.probes.prober import PodProber

__all__ = ["PodProber"]
