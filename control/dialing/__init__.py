"""Addresses that the API server itself connects to: a node's agent, checked before it is dialled, and a Service's endpoint."""
