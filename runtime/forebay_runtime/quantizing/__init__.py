"""`forebay quantize`: a model's matrices in four or eight bits, as files that any engine reads.

`flags` and `command` are the command's surface, `conversion` goes through the model layer by layer,
`layer_steps` runs one, `layer_rounding` rounds its matrices (by `awq`, `gptq`, or to the nearest),
`layouts` packs them as the formats have it, and `output` writes the folder.
"""
