"""Graceful node shutdown (KEP-2000): pods end in order, by priority, while logind holds the machine's shutdown back."""
