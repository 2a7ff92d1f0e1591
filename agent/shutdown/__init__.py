"""Graceful node shutdown (KEP-2000): pods are terminated in order of priority, while logind delays the machine's shutdown."""
