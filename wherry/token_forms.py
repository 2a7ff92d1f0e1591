"""Forms of providers' tokens that are recognized without a name before them.

Each has a beginning that nothing else has, so other texts stay as they are.
"""

from __future__ import annotations

import re

_BEGINNINGS = (
    r"gh[oprsu]_|github_pat_",  # GitHub
    r"gl(?:pat|rt|dt|cbt|ptt|soat|ft|imt|agent|oas)-",  # GitLab
    r"gl(?:sa|sr|c)_",  # Grafana
    r"xox[abcdeprs]-|xapp-[0-9]-",  # Slack
    r"AKIA|ASIA|ya29\.",  # AWS, Google
    r"[rs]k_(?:live|test)_|whsec_",  # Stripe
    r"sq0(?:csp|atp)-",  # Square
    r"shp(?:at|ca|pa|ss)_",  # Shopify
    r"do[opr]_v1_",  # DigitalOcean
    r"dckr_pat_|pypi-AgE|npm_[A-Za-z0-9]{8}",
    r"hv[bs]\.|NRAK-|AT[AC]TT3",  # Vault, New Relic, Atlassian
    r"tskey-(?:auth|api|client|scim|webhook)-|lin_api_",  # Tailscale, Linear
    r"PMAK-|HRKU-|dp\.(?:pt|st|ct|sa|scim|audit)\.",  # Postman, Heroku, Doppler
)
TOKENS = tuple(
    re.compile(pattern)
    for pattern in (
        rf"\b(?:{'|'.join(_BEGINNINGS)})[\w=-]{{8,}}(?:\.[\w-]{{1,256}}){{0,2}}",
        r"\b(?i:AGE-SECRET-KEY)-(?:PQ-)?1[A-Za-z0-9]{20,}",
        r"\b(?:AIza[\w-]{20,}|SG\.[\w-]{8,128}\.[\w-]{8,})",
        r"\b(?:hf|gsk|sbp|nfp|ntn|r8)_[A-Za-z0-9]{20,}",  # Hugging Face, Groq, Supabase, Netlify, Notion, Replicate
        r"(?<![\w-])xai-[A-Za-z0-9]{20,}",
        r"(?<![\w:.-])[0-9]{8,10}:AA[\w-]{33}(?![\w-])",  # Telegram
        r"\bdapi[0-9a-f]{32}(?:-[0-9])?\b",  # Databricks
        r"\b[A-Za-z0-9]{14}\.atlasv1\.[\w-]{20,}",  # Terraform
        r"(?<![\w-])sk-[\w-]{16,}",
    )
)
URLS = tuple(
    re.compile(pattern)
    for pattern in (
        r"(\bhooks\.slack\.com/services/)[\w/-]+",
        r"(\bdiscord(?:app)?\.com/api/(?:v[0-9]{1,3}/)?webhooks/[0-9]{1,24}/)[\w-]+",
        r"(\.webhook\.office\.com/webhookb2/)[\w@/-]+",
        r"(\bapi\.telegram\.org/(?:file/)?bot[0-9]{1,24}(?::|%3[Aa]))[\w-]+",
    )
)
"""URLs with a token, which follows the first group."""
