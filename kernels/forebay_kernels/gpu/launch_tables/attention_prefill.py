"""Launches of attention for sequences with several queries each.

ROWS: queries of a tile times the query heads of a KV head; TILE: keys. Tiles are as large as
registers hold. Where a query's numbers must not depend on its batch, decodes are computed here too,
and fewer rows keep their idle ones cheap: then one launch serves all, whatever the kind of batch.
"""

from forebay_kernels.gpu.architecture import KIB
from forebay_kernels.gpu.launch_tables.table import LaunchTable, Row
from forebay_kernels.gpu.variant import Launch

_HALVES = ("bf16", "fp16")
_NARROW = ("fp8", "fp8_bits", "int8", "int4")
_NEW = ("sm_90", "sm_100")


def _launch(num_rows: int, tile: int, num_stages: int, shared_kib: int) -> Launch:
    tiles = {"ROWS": num_rows, "TILE": tile}
    return Launch(tiles, num_warps=8, num_stages=num_stages, shared_bytes=shared_kib * KIB)


TABLE = LaunchTable(
    "attention_prefill",
    (
        Row(_launch(64, 16, 3, 68), when={"dtype": _HALVES, "kind": _NARROW, "width": 256}),
        Row(_launch(64, 32, 3, 132), when={"dtype": _HALVES, "width": 256}),
        Row(_launch(64, 32, 2, 100), when={"dtype": _HALVES, "width": 256}),
        Row(
            _launch(64, 32, 3, 60),
            when={
                "dtype": _HALVES,
                "kind": _NARROW,
                "width": range(129),
                "is_batch_invariant": True,
            },
        ),
        Row(
            _launch(64, 64, 3, 116),
            when={"dtype": _HALVES, "width": range(129), "is_batch_invariant": True},
        ),
        Row(
            _launch(128, 32, 3, 68),
            _NEW,
            when={"dtype": _HALVES, "kind": _NARROW, "width": range(129)},
        ),
        Row(_launch(64, 32, 3, 40), when={"dtype": _HALVES, "kind": _NARROW, "width": range(129)}),
        Row(_launch(128, 64, 3, 68), when={"dtype": _HALVES, "width": range(65)}),
        Row(_launch(128, 64, 3, 132), _NEW, when={"dtype": _HALVES, "width": 128}),
        Row(_launch(128, 32, 3, 68), when={"dtype": _HALVES, "width": 128}),
        Row(_launch(16, 16, 1, 48)),
    ),
)
