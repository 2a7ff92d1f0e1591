"""Builds the agent's components in groups, each from those before it, and starts them in stages (agent.py)."""
