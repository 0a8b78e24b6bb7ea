"""What is told while layers are rounded."""

from io import StringIO

from forebay_runtime.quantizing.conversion import LayerReport
from forebay_runtime.quantizing.progress import Progress


def test_time_left_is_that_of_layers_alone() -> None:
    stream = StringIO()
    progress = Progress(4, stream)

    for number, seconds in enumerate((30.0, 10.0, 20.0, 5.0)):
        progress.note(LayerReport(number, seconds, {"mlp.up_proj": 0.01 * number}))

    assert stream.getvalue().splitlines() == [
        "layer 1/4: 30.0 s, about 1 min 30 s left; largest output error 0.0% (mlp.up_proj)",
        "layer 2/4: 10.0 s, about 40 s left; largest output error 1.0% (mlp.up_proj)",
        "layer 3/4: 20.0 s, about 20 s left; largest output error 2.0% (mlp.up_proj)",
        "layer 4/4: 5.0 s; largest output error 3.0% (mlp.up_proj)",
    ]
    assert progress.worst == (0.03, "model.layers.3.mlp.up_proj")
