"""What an operator process counts, as its HTTP endpoint tells it."""

import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "forebay_operator_"


@dataclass(frozen=True)
class OperatorMetrics:
    """Samples by name, without the prefix that all share, and labels."""

    samples: Mapping[tuple[str, frozenset[tuple[str, str]]], float]

    def value(self, name: str, /, **labels: str) -> float:
        """One sample; KeyError if there is none."""
        return self.samples[name, frozenset(labels.items())]

    def sum(self, name: str, /, **labels: str) -> float:
        """Over all samples of a name that have these labels, whatever others they have."""
        wanted = frozenset(labels.items())
        return sum(
            number
            for (found, labelled), number in self.samples.items()
            if found == name and wanted <= labelled
        )

    def labelled(self, name: str, /, **labels: str) -> bool:
        """Whether any sample of a name has these labels."""
        wanted = frozenset(labels.items())
        return any(found == name and wanted <= labelled for found, labelled in self.samples)


def read_operator_metrics(address: str) -> OperatorMetrics:
    """Ask once."""
    with urllib.request.urlopen(address, timeout=10) as answer:
        return parse_operator_metrics(answer.read().decode())


def parse_operator_metrics(text: str) -> OperatorMetrics:
    """The samples of Prometheus' text format."""
    return OperatorMetrics(
        {
            (sample.name.removeprefix(PREFIX), frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }
    )
