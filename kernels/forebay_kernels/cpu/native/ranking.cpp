// How likely tokens are by the model's own scores, which rank they have, and the best beside them.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "export.h"
#include "parallel_rows.h"
#include "vocabulary.h"

namespace forebay {
namespace {

// Where what is told of one row goes: top_tokens, top: [num_top], falling.
struct Ranking {
    float* own;
    int64_t* rank;
    int64_t* top_tokens;
    float* top;
};

// Memory that stays with a thread.
struct RankingMemory {
    std::vector<float> weights, blocks, bests;
    std::vector<double> sums;
    std::vector<int> tokens;
};

RankingMemory& own_memory() {
    static thread_local RankingMemory memory;
    return memory;
}

int count_blocks(int num_tokens) { return (num_tokens + block_tokens - 1) / block_tokens; }

double log_of_sum(const float* scores, int num_tokens, float best, RankingMemory& work) {
    work.weights.resize(num_tokens);
    work.blocks.resize(count_blocks(num_tokens));
    work.sums.resize(count_blocks(num_tokens));
    vocabulary_kernels().weigh(scores, num_tokens, best, 1.0f, 0.0f, work.weights.data(),
                               work.blocks.data(), work.sums.data());
    double sum = 0.0;
    for (const double each : work.sums) sum += each;
    return std::log(sum);
}

// The num_top best tokens in falling order, of equals the first. At least as many as there are
// blocks whose best is not less than a score are not less than it, so few need be put in order.
void find_top(const float* scores, int num_tokens, int num_top, RankingMemory& work) {
    const int num_blocks = count_blocks(num_tokens);
    work.blocks.resize(num_blocks);
    vocabulary_kernels().find_block_bests(scores, num_tokens, work.blocks.data());
    float least = -std::numeric_limits<float>::infinity();
    if (num_top <= num_blocks) {
        work.bests = work.blocks;
        const auto last = work.bests.begin() + (num_top - 1);
        std::nth_element(work.bests.begin(), last, work.bests.end(), std::greater<float>());
        least = *last;
    }
    work.tokens.clear();
    for (int block = 0; block < num_blocks; ++block) {
        if (work.blocks[block] < least) continue;
        const int end = std::min(num_tokens, (block + 1) * block_tokens);
        for (int token = block * block_tokens; token < end; ++token) {
            if (scores[token] >= least) work.tokens.push_back(token);
        }
    }
    const auto is_before = [scores](int a, int b) {
        return scores[a] > scores[b] || (scores[a] == scores[b] && a < b);
    };
    std::partial_sort(work.tokens.begin(), work.tokens.begin() + num_top, work.tokens.end(),
                      is_before);
}

// A row with a score that is NaN has no order.
void tell_nothing(int num_top, const Ranking& to) {
    *to.own = std::numeric_limits<float>::quiet_NaN();
    *to.rank = 1;
    for (int i = 0; i < num_top; ++i) {
        to.top_tokens[i] = i;
        to.top[i] = *to.own;
    }
}

void rank(const float* scores, int num_tokens, int64_t token, int num_top, const Ranking& to) {
    RankingMemory& work = own_memory();
    const VocabularyKernels& kernels = vocabulary_kernels();
    const float best = kernels.find_best(scores, num_tokens).score;
    if (std::isnan(best)) return tell_nothing(num_top, to);
    const double log_sum = log_of_sum(scores, num_tokens, best, work);
    const auto logprob = [&](float score) {
        return static_cast<float>((double{score} - double{best}) - log_sum);
    };
    *to.own = logprob(scores[token]);
    *to.rank = 1 + kernels.count_greater(scores, num_tokens, scores[token]);
    if (num_top == 0) return;
    find_top(scores, num_tokens, num_top, work);
    for (int i = 0; i < num_top; ++i) {
        to.top_tokens[i] = work.tokens[i];
        to.top[i] = logprob(scores[work.tokens[i]]);
    }
}

}  // namespace
}  // namespace forebay

// Each row's token with its logprob and its rank, 1 for the best, and the num_top best beside it.
// scores: [num_rows, num_tokens]; tokens, own, ranks: [num_rows]; top_tokens, top:
// [num_rows, num_top], num_top at most num_tokens. pool may be null.
FB_EXPORT void fb_rank(forebay::Pool* pool, const float* scores, int num_rows, int num_tokens,
                       const int64_t* tokens, int num_top, float* own, int64_t* ranks,
                       int64_t* top_tokens, float* top) {
    forebay::for_each_row(pool, num_rows, [&](int row) {
        const int64_t place = int64_t{row} * num_top;
        const forebay::Ranking to = {own + row, ranks + row, top_tokens + place, top + place};
        forebay::rank(scores + int64_t{row} * num_tokens, num_tokens, tokens[row], num_top, to);
    });
}
