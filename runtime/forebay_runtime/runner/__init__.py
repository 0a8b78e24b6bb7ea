"""One step on the device: a batch in numbers, the buffers that take them there, and the model run.

`step_inputs` says what a batch is in numbers, `device_buffers` has them on the device, and
`model_runner` launches the model over them, or replays what `decode_graphs` captured.
"""
