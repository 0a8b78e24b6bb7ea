// Tokens of rows of scores: the best, or one by chance within temperature, min_p, top_k and top_p.
// Each row is computed by itself, in one fixed order, whatever other rows there are.
// Source: Holtzman et al. 2020 (nucleus sampling) §3.1.
#include <cstdint>
#include <vector>

#include "export.h"
#include "parallel_rows.h"
#include "race.h"
#include "selection.h"
#include "vocabulary.h"

namespace forebay {
namespace {

// As cpu/sampling.py packs it. top_k: 0 for all; temperature: above 0.
struct Draw {
    int64_t key;
    double top_p;
    float temperature;
    float min_p;
    int32_t top_k;
    int32_t row;
};

// What a thread needs to draw; it stays, so that nothing is asked of the system within a step.
struct DrawingMemory {
    std::vector<float> weights, largest;
    std::vector<double> sums;
    Selection selection;

    void fit(int num_tokens) {
        const int num_blocks = (num_tokens + block_tokens - 1) / block_tokens;
        weights.resize(num_tokens);
        largest.resize(num_blocks);
        sums.resize(num_blocks);
    }
};

DrawingMemory& own_memory() {
    static thread_local DrawingMemory memory;
    return memory;
}

double sum_of(const std::vector<double>& sums) {
    double total = 0.0;
    for (const double each : sums) total += each;
    return total;
}

// Of all tokens: of heats first, which are numbered past the tokens.
int draw_of_all(const DrawingMemory& work, int num_tokens, int64_t key) {
    const int num_blocks = static_cast<int>(work.sums.size());
    const int num_heats = (num_blocks + heat_blocks - 1) / heat_blocks;
    Race heats(key);
    for (int heat = 0; heat < num_heats; ++heat) {
        double sum = 0.0;
        for (int i = heat * heat_blocks; i < num_blocks && i < (heat + 1) * heat_blocks; ++i) {
            sum += work.sums[i];
        }
        heats.enter(heat, num_tokens + heat, sum);
    }
    const int start = heats.winner() * heat_tokens;
    const int end = start + heat_tokens < num_tokens ? start + heat_tokens : num_tokens;
    Race tokens(key);
    for (int token = start; token < end; ++token) tokens.enter(token, token, work.weights[token]);
    return tokens.winner();
}

// Leaves the top_k best tokens, and of these the fewest that hold top_p of their weight.
void choose_candidates(const Draw& draw, int num_tokens, DrawingMemory& work) {
    const WeighedRow row = {work.weights.data(), work.largest.data(), num_tokens};
    Enough enough = {num_tokens, draw.top_p * sum_of(work.sums)};
    if (draw.top_k > 0) enough = {draw.top_k, __builtin_inf()};
    work.selection.collect(row, enough);
    work.selection.keep_heaviest(enough);
    if (draw.top_k == 0 || draw.top_p >= 1.0) return;
    work.selection.keep_heaviest({num_tokens, draw.top_p * work.selection.weight()});
}

int draw_token(const float* scores, int num_tokens, const Draw& draw) {
    DrawingMemory& work = own_memory();
    work.fit(num_tokens);
    const VocabularyKernels& kernels = vocabulary_kernels();
    kernels.weigh(scores, num_tokens, kernels.find_best(scores, num_tokens).score, draw.temperature,
                  draw.min_p, work.weights.data(), work.largest.data(), work.sums.data());
    if (draw.top_k == 0 && draw.top_p >= 1.0) return draw_of_all(work, num_tokens, draw.key);
    choose_candidates(draw, num_tokens, work);
    Race race(draw.key);
    for (const Candidate& each : work.selection.candidates()) {
        race.enter(each.token, each.token, each.weight);
    }
    return race.winner();
}

}  // namespace
}  // namespace forebay

// Each row's best token, the first of equals, and its score, NaN where any is.
// scores: [num_rows, num_tokens]; best, tokens: [num_rows]. pool may be null.
FB_EXPORT void fb_find_best(forebay::Pool* pool, const float* scores, int num_rows, int num_tokens,
                            float* best, int64_t* tokens) {
    forebay::for_each_row(pool, num_rows, [&](int row) {
        const float* own = scores + int64_t{row} * num_tokens;
        const forebay::Best found = forebay::vocabulary_kernels().find_best(own, num_tokens);
        best[row] = found.score;
        tokens[row] = found.token;
    });
}

// A token for each draw, by its own chance and of its own row, which has a finite best score.
// scores: [rows, num_tokens]; tokens: [num_draws]. pool may be null.
FB_EXPORT void fb_draw(forebay::Pool* pool, const float* scores, int num_tokens, const void* draws,
                       int num_draws, int64_t* tokens) {
    const auto* asked = static_cast<const forebay::Draw*>(draws);
    forebay::for_each_row(pool, num_draws, [&](int i) {
        const float* own = scores + int64_t{asked[i].row} * num_tokens;
        tokens[i] = forebay::draw_token(own, num_tokens, asked[i]);
    });
}
