// The fewest of the heaviest tokens that are enough: so many of them, or such a part of all weight.
#pragma once

#include <cstdint>
#include <vector>

namespace forebay {

// weight > 0
struct Candidate {
    float weight;
    int token;
};

// Enough are `count` tokens, or those that hold `weight`, whichever are fewer.
struct Enough {
    int64_t count;
    double weight;
};

// What a row of weights is, by blocks of block_tokens; see vocabulary.h.
struct WeighedRow {
    const float* weights;
    const float* largest;
    int num_tokens;
};

// Chooses, in memory that it keeps.
class Selection {
  public:
    // Tokens of a weight above 0, by their ids, among which are all that are enough; few more than
    // that where the weights are those of a model that is sure of what it says.
    void collect(const WeighedRow& row, const Enough& enough);

    // Leaves the heaviest that are enough, by their ids; of equal ones the first. All, if they are
    // not enough.
    void keep_heaviest(const Enough& enough);

    const std::vector<Candidate>& candidates() const { return candidates_; }

    double weight() const { return sum_up().weight; }

  private:
    struct Sums {
        int64_t count = 0;
        double weight = 0.0;

        Sums operator+(const Sums& other) const {
            return {count + other.count, weight + other.weight};
        }
        bool are(const Enough& enough) const {
            return count >= enough.count || weight >= enough.weight;
        }
    };
    // Where it is enough: all that are heavier, and so many of those that weigh exactly this.
    struct Threshold {
        float weight;
        int64_t num_equal;
    };

    void collect_block(const WeighedRow& row, int block, float least);
    Sums sum_up() const;
    Threshold find_threshold(const Enough& enough);
    Sums narrow(int shift, uint32_t mask, const Sums& above, const Enough& enough);

    std::vector<Candidate> candidates_, members_;
    std::vector<Sums> bins_;
};

}  // namespace forebay
