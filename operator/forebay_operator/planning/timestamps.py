"""Times as Kubernetes writes them (`2026-01-31T12:00:00Z`) and as Python compares them."""

from datetime import UTC, datetime


def parse_time(text: str) -> datetime:
    """Read an RFC 3339 time, with or without fractions of a second."""
    return datetime.fromisoformat(text.replace("Z", "+00:00")).astimezone(UTC)


def to_time(moment: datetime) -> str:
    """Write a time in whole seconds, as `metav1.Time` does."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds_since(text: str, now: datetime) -> float:
    """How long ago a written time was; negative in the future."""
    return (now - parse_time(text)).total_seconds()
