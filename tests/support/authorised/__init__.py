"""What was authorised is what was done: the parts of the properties in tests/contract/authorised."""
