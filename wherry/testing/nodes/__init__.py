"""Simulated nodes: the kubelet's state machine and statuses (agent/lifecycle, agent/status) on containers that are scripts."""
