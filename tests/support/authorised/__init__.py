"""Authorized actions equal performed actions: the parts of the properties in tests/contract/authorised."""
