"""Custom resources, defined by CustomResourceDefinitions and served like built-in resources."""
