// The best of a vocabulary's scores, and what each token weighs beside it. Loops without branches
// over lanes of their own, which the compiler turns into the vectors of the set that it is told.
#include "../vocabulary.h"

#include "functions.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

constexpr int num_lanes = 64;

FB_ALWAYS_INLINE bool is_nan(float x) { return (to_bits(x) & 0x7fffffffu) > 0x7f800000u; }

FB_ALWAYS_INLINE float larger(float a, float b) { return a > b ? a : b; }

// The place of the first that is equal; there is one.
int find(const float* scores, int num_tokens, float wanted) {
    int start = 0;
    for (; start + num_lanes <= num_tokens; start += num_lanes) {
        uint32_t num_equal = 0;
        for (int lane = 0; lane < num_lanes; ++lane) num_equal += scores[start + lane] == wanted;
        if (num_equal != 0) break;
    }
    while (start < num_tokens - 1 && scores[start] != wanted) ++start;
    return start;
}

Best find_best(const float* scores, int num_tokens) {
    float best[num_lanes];
    uint32_t num_nan[num_lanes] = {};
    for (float& each : best) each = -__builtin_inff();
    int i = 0;
    for (; i + num_lanes <= num_tokens; i += num_lanes) {
        for (int lane = 0; lane < num_lanes; ++lane) {
            const float score = scores[i + lane];
            best[lane] = larger(score, best[lane]);
            num_nan[lane] += is_nan(score);
        }
    }
    for (int lane = 0; i + lane < num_tokens; ++lane) {
        best[lane] = larger(scores[i + lane], best[lane]);
        num_nan[lane] += is_nan(scores[i + lane]);
    }
    for (int lane = 1; lane < num_lanes; ++lane) {
        best[0] = larger(best[lane], best[0]);
        num_nan[0] += num_nan[lane];
    }
    if (num_nan[0] != 0) return {__builtin_nanf(""), 0};
    return {best[0], find(scores, num_tokens, best[0])};
}

struct Scale {
    float best, temperature, least;
};

FB_ALWAYS_INLINE float weight_of(float score, const Scale& scale) {
    const float weight = exp_of((score - scale.best) / scale.temperature);
    return weight < scale.least ? 0.0f : weight;
}

// The sum of a block in a fixed order, each weight as a double.
FB_ALWAYS_INLINE double sum_of(const float* weights) {
    double sums[8] = {};
    for (int i = 0; i < block_tokens; i += 8) {
        for (int lane = 0; lane < 8; ++lane) sums[lane] += weights[i + lane];
    }
    return ((sums[0] + sums[4]) + (sums[1] + sums[5])) + ((sums[2] + sums[6]) + (sums[3] + sums[7]));
}

FB_ALWAYS_INLINE float largest_of(const float* weights) {
    float largest[16] = {};
    for (int i = 0; i < block_tokens; i += 16) {
        for (int lane = 0; lane < 16; ++lane) {
            largest[lane] = larger(weights[i + lane], largest[lane]);
        }
    }
    for (int half = 8; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) {
            largest[lane] = larger(largest[lane], largest[half + lane]);
        }
    }
    return largest[0];
}

void weigh(const float* scores, int num_tokens, float best, float temperature, float least,
           float* weights, float* largest, double* sums) {
    const Scale scale = {best, temperature, least};
    int block = 0;
    for (; (block + 1) * block_tokens <= num_tokens; ++block) {
        const float* from = scores + block * block_tokens;
        float* to = weights + block * block_tokens;
        for (int i = 0; i < block_tokens; ++i) to[i] = weight_of(from[i], scale);
        largest[block] = largest_of(to);
        sums[block] = sum_of(to);
    }
    const int start = block * block_tokens;
    if (start == num_tokens) return;
    float rest[block_tokens] = {};
    for (int i = 0; start + i < num_tokens; ++i) rest[i] = weight_of(scores[start + i], scale);
    for (int i = 0; start + i < num_tokens; ++i) weights[start + i] = rest[i];
    largest[block] = largest_of(rest);
    sums[block] = sum_of(rest);
}

void find_block_bests(const float* scores, int num_tokens, float* bests) {
    for (int start = 0; start < num_tokens; start += block_tokens) {
        float best[16];
        for (float& each : best) each = -__builtin_inff();
        const int size = num_tokens - start < block_tokens ? num_tokens - start : block_tokens;
        int i = 0;
        for (; i + 16 <= size; i += 16) {
            for (int lane = 0; lane < 16; ++lane) {
                best[lane] = larger(scores[start + i + lane], best[lane]);
            }
        }
        for (; i < size; ++i) best[0] = larger(scores[start + i], best[0]);
        for (int lane = 1; lane < 16; ++lane) best[0] = larger(best[lane], best[0]);
        bests[start / block_tokens] = best[0];
    }
}

int64_t count_greater(const float* scores, int num_tokens, float than) {
    uint32_t number = 0;
    for (int i = 0; i < num_tokens; ++i) number += scores[i] > than;
    return number;
}

}  // namespace

extern const VocabularyKernels vocabulary_kernels_table;
const VocabularyKernels vocabulary_kernels_table = {find_best, weigh, find_block_bests,
                                                      count_greater};

}  // namespace FOREBAY_ISA
}  // namespace forebay
