"""Custom resources: what CustomResourceDefinitions ask the server to serve, as everything that is built in is served."""
