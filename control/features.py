"""Upstream's feature gates as this server has them, for `kubernetes_feature_enabled`, /flagz and --feature-gates.

A gate here says what the code does, and cannot be turned: what upstream has on by default in v1.36 and is built is on,
what upstream has off by default is off. Gates of other parts (kubelet, proxy) are not this server's to tell.
"""

from __future__ import annotations

GA, BETA, ALPHA, DEPRECATED = "", "BETA", "ALPHA", "DEPRECATED"

GATES: dict[str, tuple[str, bool]] = {
    "APIResponseCompression": (BETA, True),
    "APIServerIdentity": (BETA, True),
    "APIServingWithRoutine": (ALPHA, False),
    "AdmissionWebhookMatchConditions": (GA, True),
    "AggregatedDiscoveryRemoveBetaType": (DEPRECATED, False),
    "AllAlpha": (ALPHA, False),
    "AllBeta": (BETA, False),
    "AllowUnsafeMalformedObjectDeletion": (ALPHA, False),
    "AnonymousAuthConfigurableEndpoints": (GA, True),
    "AuthorizeNodeWithSelectors": (GA, True),
    "AuthorizeWithSelectors": (GA, True),
    "CBORServingAndStorage": (ALPHA, False),
    "CRDValidationRatcheting": (GA, True),
    "ComponentFlagz": (BETA, True),
    "ComponentStatusz": (BETA, True),
    "ConcurrentWatchObjectDecode": (BETA, False),
    "ConsistentListFromCache": (GA, True),
    "ConstrainedImpersonation": (BETA, True),
    "CoordinatedLeaderElection": (BETA, False),
    "CustomResourceFieldSelectors": (GA, True),
    "DRAResourceClaimDeviceStatus": (BETA, True),
    "DRAResourceClaimGranularStatusAuthorization": (BETA, True),
    "DynamicResourceAllocation": (GA, True),
    "InPlacePodVerticalScaling": (GA, True),
    "JobManagedBy": (GA, True),
    "JobPodReplacementPolicy": (GA, True),
    "JobSuccessPolicy": (GA, True),
    "KMSv1": (DEPRECATED, False),
    "ListFromCacheSnapshot": (BETA, True),
    "MultiCIDRServiceAllocator": (GA, True),
    "MutatingAdmissionPolicy": (GA, True),
    "OrderedNamespaceDeletion": (GA, True),
    "PodLogsQuerySplitStreams": (ALPHA, False),
    "PodSchedulingReadiness": (GA, True),
    "RecoverVolumeExpansionFailure": (GA, True),
    "RelaxedDNSSearchValidation": (GA, True),
    "RelaxedEnvironmentVariableValidation": (GA, True),
    "RelaxedServiceNameValidation": (BETA, True),
    "RemoteRequestHeaderUID": (BETA, True),
    "ResilientWatchCacheInitialization": (GA, True),
    "ResourceHealthStatus": (BETA, True),
    "SELinuxMount": (BETA, False),
    "ServiceAccountTokenJTI": (GA, True),
    "ServiceAccountTokenNodeBinding": (GA, True),
    "ServiceAccountTokenPodNodeInfo": (GA, True),
    "SidecarContainers": (GA, True),
    "StreamingCollectionEncodingToJSON": (GA, True),
    "StrictIPCIDRValidation": (BETA, True),
    "StructuredAuthenticationConfiguration": (GA, True),
    "StructuredAuthorizationConfiguration": (GA, True),
    "TranslateStreamCloseWebsocketRequests": (BETA, True),
    "UnknownVersionInteroperabilityProxy": (ALPHA, False),
    "UserNamespacesSupport": (GA, True),
    "ValidatingAdmissionPolicy": (GA, True),
    "WatchCacheInitializationPostStartHook": (BETA, False),
    "WatchList": (BETA, True),
}
"""Name -> stage (as the metric's label has it) and whether it is on."""


def check(wanted: dict[str, bool]) -> None:
    """Raise ValueError, in upstream's words, for a gate that is not known or would have to be turned."""
    for name, on in wanted.items():
        if name not in GATES:
            raise ValueError(f"unrecognized feature gate: {name}")
        if GATES[name][1] != on:
            given, is_ = str(on).lower(), str(not on).lower()
            raise ValueError(f"cannot set feature gate {name} to {given}, feature is locked to {is_}")
