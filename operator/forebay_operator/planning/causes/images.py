"""Sentences for images that a node could not get: the model's, the runtime's or the operator's."""

import re

from forebay_operator.planning.causes.cause import Cause, trim
from forebay_operator.service import Service

IMAGE_REASONS = frozenset(
    {
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "ImageInspectError",
        "RegistryUnavailable",
        "SignatureValidationFailed",
    }
)
"""Waiting reasons of the kubelet, the same for containers' images and for image volumes."""

_BACK_OFF = re.compile(r'^Back-off pulling image "[^"]*"(: (ErrImagePull: )?)?')


def explain_image(reason: str, says: str, warning: str, image: str, service: Service) -> Cause:
    """Say which image could not be had and where it is named.

    The kubelet alternates between ErrImagePull and ImagePullBackOff; both become one reason and one
    sentence, so that status does not change with each try.
    """
    model_image = service.model.location if service.model.scheme == "oci" else ""
    heard = says + warning
    is_model = bool(model_image) and model_image in heard.replace(image, "")
    detail = trim(_BACK_OFF.sub("", says)) or trim(warning) or reason
    if "no space left on device" in heard:
        too_large = model_image if is_model else image
        return Cause(
            "NodeDiskFull",
            f"Image {too_large} does not fit on its node's disk: {detail}; "
            "free or enlarge that disk, or pick nodes with more by spec.podTemplate.nodeSelector.",
        )
    name = "InvalidImageName" if reason == "InvalidImageName" else "ImagePullFailed"
    if is_model:
        return Cause(
            name,
            f"The model's image {model_image} could not be pulled: {detail}; correct "
            "spec.model.uri, push the image, or name its pull secret in "
            "spec.podTemplate.imagePullSecrets.",
        )
    return Cause(
        name,
        f"Image {image} could not be pulled: {detail}; {_image_knob(service)}.",
    )


def _image_knob(service: Service) -> str:
    if service.runtime_version:
        return (
            f"correct spec.runtimeVersion ({service.runtime_version}), or name the image's pull "
            "secret in spec.podTemplate.imagePullSecrets"
        )
    return (
        "the platform team names it in the operator's settings, spec.runtimeVersion picks another "
        "tag, and spec.podTemplate.imagePullSecrets its pull secret"
    )
