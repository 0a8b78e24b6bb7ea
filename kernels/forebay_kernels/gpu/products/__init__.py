"""Products with weights: dense, in few bits, of bytes, and of a mixture's experts.

A kernel is a tile of a sum (`dense_product`, `quant_product`) and its end (`product_store`, or
`split_sum` where programs share the inputs of a tile).
"""
