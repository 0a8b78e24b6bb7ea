"""All layers' keys and values, in blocks."""

from __future__ import annotations

from dataclasses import dataclass

from forebay_kernels import ops


@dataclass(frozen=True)
class KvCache:
    """One KvLayer for each layer of the model, all of the same shape."""

    layers: tuple[ops.KvLayer, ...]

    @property
    def num_blocks(self) -> int:
        """P."""
        return self.layers[0].k.shape[0]

    @property
    def block_size(self) -> int:
        """B, in tokens."""
        return self.layers[0].k.shape[1]

    @property
    def num_bytes(self) -> int:
        """What all layers take, scales included."""
        return sum(layer.num_bytes for layer in self.layers)
