"""The ends of a decoder: token ids to embeddings, and states to scores of the vocabulary.

Under tensor parallelism each rank holds a range of token ids, padded so that all hold as many.
"""

from __future__ import annotations

from torch import Tensor

from forebay_budget.inspection import ModelConfig
from forebay_budget.terms import own_vocabulary
from forebay_kernels import ops
from forebay_runtime.models.link import Link
from forebay_runtime.models.product import ProductForm, build_head, build_product, table_bytes
from forebay_runtime.models.weights import WeightReader

_EMBEDDING, _HEAD = "model.embed_tokens.weight", "lm_head.weight"


class Embedding:
    """The rows of token ids."""

    def __init__(self, sizes: ModelConfig, reader: WeightReader, link: Link) -> None:
        num_rows = own_vocabulary(sizes.vocab_size, link.shard.size)
        self._link = link
        self._start = link.shard.rank * num_rows
        self.weight = reader.vocabulary(_EMBEDDING, sizes.vocab_size, sizes.hidden_size, num_rows)
        self.num_bytes = table_bytes(self.weight)

    def __call__(self, token_ids: Tensor) -> Tensor:
        """Look up. Shapes: token_ids [T] int64; out [T, h]."""
        if self._link.shard.is_whole:
            return ops.embedding(token_ids, self.weight)
        return self._link.add_up(ops.embedding(token_ids, self.weight, self._start))


class Head:
    """Scores of all token ids."""

    def __init__(
        self, sizes: ModelConfig, reader: WeightReader, link: Link, embedding: Embedding | None
    ) -> None:
        """embedding: that whose rows are the head's too, where they are tied and it is here."""
        self._link = link
        self._vocab_size = sizes.vocab_size
        num_rows = own_vocabulary(sizes.vocab_size, link.shard.size)
        self._is_exact = num_rows * link.shard.size == sizes.vocab_size
        self.num_bytes = 0
        if embedding is not None and sizes.tie_word_embeddings:
            self._linear = build_head(embedding.weight, reader.native)
            return
        name = _EMBEDDING if sizes.tie_word_embeddings else _HEAD
        table = reader.vocabulary(name, sizes.vocab_size, sizes.hidden_size, num_rows)
        self._linear = build_product([table], None, ProductForm(native=reader.native))
        self.num_bytes = self._linear.num_bytes

    def __call__(self, normed: Tensor) -> Tensor:
        """Shapes: normed [T, h]; out [T, V] in the model's dtype."""
        scores = self._link.join(self._linear(normed))
        return scores if self._is_exact else scores[:, : self._vocab_size]
