// Nothing is put in order. What is above 0 is in the order of its bits, so the weight from which on
// tokens are kept is found bit by bit: some of the highest, counted and added up in bins, then the
// next within the bin where it became enough. Flat distributions, which keep most of a vocabulary,
// cost little more that way.
#include "selection.h"

#include <cmath>
#include <cstring>

#include "vocabulary.h"

namespace forebay {
namespace {

constexpr int num_bins = 1 << 11;
// Of 32 bits the highest is the sign's.
constexpr int shifts[] = {20, 9, 0};
constexpr int widths[] = {11, 11, 9};

uint32_t bits_of(float weight) {
    uint32_t bits;
    std::memcpy(&bits, &weight, 4);
    return bits;
}

}  // namespace

void Selection::collect(const WeighedRow& row, const Enough& enough) {
    const int num_blocks = (row.num_tokens + block_tokens - 1) / block_tokens;
    for (const float least : {0x1p-3f, 0x1p-6f, 0x1p-10f, 0x1p-16f, 0x1p-149f}) {
        candidates_.clear();
        for (int block = 0; block < num_blocks; ++block) {
            if (row.largest[block] >= least) collect_block(row, block, least);
        }
        if (sum_up().are(enough)) return;
    }
}

// Without a branch: which tokens are taken is hard to foresee.
void Selection::collect_block(const WeighedRow& row, int block, float least) {
    const int start = block * block_tokens;
    const int end = start + block_tokens < row.num_tokens ? start + block_tokens : row.num_tokens;
    size_t number = candidates_.size();
    candidates_.resize(number + block_tokens);
    for (int token = start; token < end; ++token) {
        candidates_[number] = {row.weights[token], token};
        number += row.weights[token] >= least;
    }
    candidates_.resize(number);
}

Selection::Sums Selection::sum_up() const {
    Sums sums;
    for (const Candidate& each : candidates_) {
        sums.count += 1;
        sums.weight += each.weight;
    }
    return sums;
}

void Selection::keep_heaviest(const Enough& enough) {
    if (candidates_.empty()) return;
    Threshold threshold = find_threshold(enough);
    size_t num_kept = 0;
    for (const Candidate& each : candidates_) {
        const bool is_equal = each.weight == threshold.weight;
        candidates_[num_kept] = each;
        num_kept += each.weight > threshold.weight || (is_equal && threshold.num_equal-- > 0);
    }
    candidates_.resize(num_kept);
}

Selection::Threshold Selection::find_threshold(const Enough& enough) {
    members_ = candidates_;
    Sums above;
    for (int level = 0; level < 3; ++level) {
        above = narrow(shifts[level], (1u << widths[level]) - 1, above, enough);
    }
    const float weight = members_.front().weight;
    const int64_t num_equal = static_cast<int64_t>(members_.size());
    // How many of them are enough beside those above; at least one.
    const double by_weight = std::ceil((enough.weight - above.weight) / weight);
    int64_t number = enough.count - above.count;
    if (by_weight < static_cast<double>(number)) number = static_cast<int64_t>(by_weight);
    return {weight, number < 1 ? 1 : (number > num_equal ? num_equal : number)};
}

// Leaves the members of the bin in which it becomes enough; where it never does, of the lightest
// bin that has any. Returns the sums of all heavier ones.
Selection::Sums Selection::narrow(int shift, uint32_t mask, const Sums& above,
                                  const Enough& enough) {
    const auto bin_of = [&](const Candidate& each) { return (bits_of(each.weight) >> shift) & mask; };
    bins_.assign(num_bins, Sums{});
    for (const Candidate& each : members_) {
        Sums& bin = bins_[bin_of(each)];
        bin.count += 1;
        bin.weight += each.weight;
    }
    Sums heavier = above, so_far = above;
    uint32_t chosen = 0;
    for (uint32_t bin = mask + 1; bin-- > 0;) {
        if (bins_[bin].count == 0) continue;
        chosen = bin;
        heavier = so_far;
        so_far = so_far + bins_[bin];
        if (so_far.are(enough)) break;
    }
    size_t num_kept = 0;
    for (const Candidate& each : members_) {
        members_[num_kept] = each;
        num_kept += bin_of(each) == chosen;
    }
    members_.resize(num_kept);
    return heavier;
}

}  // namespace forebay
