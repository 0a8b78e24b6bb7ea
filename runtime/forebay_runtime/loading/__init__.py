"""From what lies on a disk or a hub to tensors in place.

`hub` fetches, `description` says what a model is, `checkpoint` opens its weights, of which `folder`
reads safetensors and `gguf_file` GGUF; `packed_matrices` reads those that are packed in few bits.
"""
