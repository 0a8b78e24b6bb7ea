// What a step is about: sequences with query tokens, one after another. Mirrored by step.py.
#pragma once

#include <cstdint>

namespace forebay {

// token_ids, positions, slots [num_tokens]: a slot is where the token's key lies in the cache,
// block * block_size + offset, or negative for a token that has none.
// query_starts [num_seqs + 1]: sequence s has the rows from query_starts[s] to query_starts[s + 1].
// seq_lens [num_seqs]: tokens with a key, those of this step included.
// block_tables [num_seqs, block_table_stride]: the blocks of each sequence in order.
// sampled_rows [num_sampled]: which tokens' rows go on to the end.
struct Step {
    int32_t num_tokens;
    int32_t num_seqs;
    int32_t num_sampled;
    int32_t block_table_stride;
    const int64_t* token_ids;
    const int64_t* positions;
    const int64_t* slots;
    const int32_t* query_starts;
    const int32_t* seq_lens;
    const int32_t* block_tables;
    const int64_t* sampled_rows;
};

}  // namespace forebay
