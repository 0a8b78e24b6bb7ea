// What each set of instructions does to the scores of a whole vocabulary; see isa/.
#pragma once

#include <cstdint>

namespace forebay {

// Weights are looked at in blocks of as many tokens: of one whose largest is too small, no token
// is looked at.
constexpr int block_tokens = 64;
// A race over the whole vocabulary is of heats of as many tokens, by their sums, and then within
// the heat that won: as exact as one race of all, with few numbers to draw.
constexpr int heat_tokens = 256;
constexpr int heat_blocks = heat_tokens / block_tokens;

struct Best {
    float score;  // NaN where any score is
    int token;    // the first of equals
};

struct VocabularyKernels {
    Best (*find_best)(const float* scores, int num_tokens);
    // Chances before they are divided by their sum, the best token's being 1:
    // weights [num_tokens] = e ** ((score - best) / temperature), or 0 where that is below least
    // largest [ceil(num_tokens / block_tokens)]: of each block; sums, of the same shape: too
    void (*weigh)(const float* scores, int num_tokens, float best, float temperature, float least,
                  float* weights, float* largest, double* sums);
    // The largest of each block; -inf where all of it is NaN: [ceil(num_tokens / block_tokens)]
    void (*find_block_bests)(const float* scores, int num_tokens, float* bests);
    // How many scores are greater.
    int64_t (*count_greater)(const float* scores, int num_tokens, float than);
};

// Those of the instructions in use.
const VocabularyKernels& vocabulary_kernels();

}  // namespace forebay
