"""Features that the GatewayClass reports, by the names of the Gateway API's conformance tests, in their order there."""

from __future__ import annotations

FEATURES = tuple(
    sorted(
        """
        Gateway GatewayAddressEmpty GatewayHTTPListenerIsolation GatewayPort8080
        HTTPRoute HTTPRoute303RedirectStatusCode HTTPRoute307RedirectStatusCode HTTPRoute308RedirectStatusCode
        HTTPRouteBackendProtocolWebSocket HTTPRouteBackendRequestHeaderModification HTTPRouteBackendTimeout
        HTTPRouteHostRewrite HTTPRouteMethodMatching HTTPRouteNamedRouteRule HTTPRouteParentRefPort HTTPRoutePathRedirect
        HTTPRoutePathRewrite HTTPRoutePortRedirect HTTPRouteQueryParamMatching HTTPRouteRequestTimeout
        HTTPRouteResponseHeaderModification HTTPRouteSchemeRedirect
        ReferenceGrant
        """.split()
    )
)
