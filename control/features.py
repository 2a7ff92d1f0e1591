"""Upstream's feature gates as this server has them, for `kubernetes_feature_enabled`, /flagz and --feature-gates.

A gate here says what the code does: what upstream has on by default in v1.36 and is built is on, what upstream has off by
default is off. Only the gates in SETTABLE can be turned on: features that are built, but that upstream has off by default.
Gates of other parts (kubelet, proxy) are not this server's to tell.
"""

from __future__ import annotations

from collections.abc import Mapping

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
    "ClusterTrustBundleProjection": (BETA, False),
    "ComponentFlagz": (BETA, True),
    "ComponentStatusz": (BETA, True),
    "ConcurrentWatchObjectDecode": (BETA, False),
    "ConsistentListFromCache": (GA, True),
    "ConstrainedImpersonation": (BETA, True),
    "ContainerStopSignals": (ALPHA, False),
    "CoordinatedLeaderElection": (BETA, False),
    "CrossNamespaceVolumeDataSource": (ALPHA, False),
    "CustomResourceFieldSelectors": (GA, True),
    "DRAListTypeAttributes": (ALPHA, False),
    "DRANodeAllocatableResources": (ALPHA, False),
    "DRAResourceClaimDeviceStatus": (BETA, True),
    "DRAResourceClaimGranularStatusAuthorization": (BETA, True),
    "DynamicResourceAllocation": (GA, True),
    "GenericWorkload": (ALPHA, False),
    "HPAScaleToZero": (ALPHA, False),
    "ImageVolumeWithDigest": (ALPHA, False),
    "InPlacePodVerticalScaling": (GA, True),
    "JobManagedBy": (GA, True),
    "JobPodReplacementPolicy": (GA, True),
    "JobSuccessPolicy": (GA, True),
    "KMSv1": (DEPRECATED, False),
    "ListFromCacheSnapshot": (BETA, True),
    "MaxUnavailableStatefulSet": (BETA, False),
    "MultiCIDRServiceAllocator": (GA, True),
    "MutablePVNodeAffinity": (ALPHA, False),
    "MutatingAdmissionPolicy": (GA, True),
    "OrderedNamespaceDeletion": (GA, True),
    "PodCertificateRequest": (BETA, False),
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
    "TaintTolerationComparisonOperators": (ALPHA, False),
    "TranslateStreamCloseWebsocketRequests": (BETA, True),
    "UnknownVersionInteroperabilityProxy": (ALPHA, False),
    "UserNamespacesHostNetworkSupport": (ALPHA, False),
    "UserNamespacesSupport": (GA, True),
    "ValidatingAdmissionPolicy": (GA, True),
    "VolumeLimitScaling": (ALPHA, False),
    "WatchCacheInitializationPostStartHook": (BETA, False),
    "WatchList": (BETA, True),
}
"""Name -> stage (as the metric's label has it) and whether it is on."""


SETTABLE = frozenset(
    (
        "ClusterTrustBundleProjection",
        "ContainerStopSignals",
        "MaxUnavailableStatefulSet",
        "TaintTolerationComparisonOperators",
    )
)
"""Gates that are off by default and can be turned on."""


def check(wanted: Mapping[str, bool]) -> None:
    """Raise ValueError, in upstream's words, for a gate that is not known or cannot be turned."""
    for name, on in wanted.items():
        if name not in GATES:
            raise ValueError(f"unrecognized feature gate: {name}")
        if GATES[name][1] != on and name not in SETTABLE:
            given, is_ = str(on).lower(), str(not on).lower()
            raise ValueError(f"cannot set feature gate {name} to {given}, feature is locked to {is_}")


def turned_on(wanted: Mapping[str, bool]) -> frozenset[str]:
    """Return the gates that are on although they are off by default."""
    return frozenset(name for name, on in wanted.items() if on and name in SETTABLE)


def state(wanted: Mapping[str, bool]) -> dict[str, tuple[str, bool]]:
    """Return name -> stage and whether it is on, for all gates."""
    on = turned_on(wanted)
    return {name: (stage, usual or name in on) for name, (stage, usual) in GATES.items()}
