"""Limits of memory and of block sizes that all codebooks share."""

# Bytes that the scores of one block may take, with the spectra they are computed from.
MAX_SCORE_BYTES = 256 << 20

# Scores computed in one block. The scores of a block, the spectra they are computed from and the bases they share fit
# into a 32 MB L3 cache, and the transforms of a block (256 at d = 3000) outweigh the cost of planning them. From 64 to
# 1024 transforms the time varied by 15 %; without blocks, at 670,091 labels and 16 rows, it was four times as long.
MAX_BLOCK_SCORES = 3 << 18

# From this number of scores on, the compiled top k is faster than torch's.
MIN_SCORES_FOR_COMPILED_TOP_K = 1 << 14

# From these numbers on, the compiled softmax over all labels is used. It takes the time of 16 rows for any part of
# them, a third to a quarter of that of torch's operations (benchmarks/bench_softmax.py), and is compiled for each d
# when it is first used.
MIN_ROWS_FOR_COMPILED_SOFTMAX, MIN_SCORES_FOR_COMPILED_SOFTMAX = 6, 1 << 20
