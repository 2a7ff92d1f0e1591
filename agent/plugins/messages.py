"""The registration messages: the only module that imports their generated stubs, and only once a plugin is there."""

from agent.plugins.wire.registration_pb2 import (
    InfoRequest,
    PluginInfo,
    RegistrationStatus,
    RegistrationStatusResponse,
)

__all__ = ["InfoRequest", "PluginInfo", "RegistrationStatus", "RegistrationStatusResponse"]
