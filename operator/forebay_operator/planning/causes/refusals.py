"""Sentences for what the API server, a quota or an admission controller refuses."""

from forebay_operator.planning.causes.cause import Cause, trim


def explain_refusal(sentence: str, model_uri: str) -> Cause:
    """Name what the API server, a quota or an admission controller refused, by its own words."""
    if "must specify a volume type" in sentence and model_uri.startswith("oci://"):
        return Cause(
            "ImageVolumesDisabled",
            f"This cluster does not mount images as volumes, which {model_uri} needs; turn on its "
            "ImageVolume feature gate (on by default from Kubernetes 1.35), or use hf:// or pvc://.",
        )
    for marker, reason, advice in _REFUSALS:
        if marker in sentence:
            return Cause(reason, f"{trim(sentence)}; {advice}.")
    return Cause("ApplyFailed", f"The API server refused: {trim(sentence)}.")


_REFUSALS = (
    (
        "because it is being terminated",
        "NamespaceTerminating",
        "nothing can be created in it any more",
    ),
    ("exceeded quota", "QuotaExceeded", "raise the namespace's ResourceQuota or ask for less"),
    (
        "failed quota",
        "QuotaExceeded",
        "the namespace's ResourceQuota wants these named: set spec.podTemplate.resources",
    ),
    (
        "violates PodSecurity",
        "PodSecurityViolated",
        "change what spec.podTemplate adds, or the namespace's Pod Security level",
    ),
    (
        "error looking up service account",
        "ServiceAccountMissing",
        "it comes back by itself, unless something deletes it",
    ),
    (
        "failed calling webhook",
        "WebhookFailed",
        "mend that webhook, or have it ignore its own failures",
    ),
    (
        "was not answered in time",
        "APIServerSlow",
        "look for an admission webhook that takes longer than 10 seconds, or a busy API server",
    ),
    ("too large", "ObjectTooLarge", "shorten spec.podTemplate"),
    ("denied the request", "AdmissionDenied", "an admission webhook of this cluster decides this"),
    ("denied request", "AdmissionDenied", "an admission policy of this cluster decides this"),
    (" per Container is", "LimitRangeViolated", "the namespace's LimitRange decides this"),
    (" per Pod is", "LimitRangeViolated", "the namespace's LimitRange decides this"),
    (
        "is forbidden: User",
        "Forbidden",
        "the operator lacks this right: install its RBAC again",
    ),
    (
        "no PriorityClass with name",
        "PriorityClassNotFound",
        "correct spec.podTemplate.priorityClassName",
    ),
    (
        'RuntimeClass "',
        "RuntimeClassNotFound",
        "correct spec.podTemplate.runtimeClassName",
    ),
    (
        " is invalid: ",
        "ChildInvalid",
        "correct the field of spec.podTemplate or spec.model that says so",
    ),
)
