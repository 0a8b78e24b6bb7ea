// A draw is a race: each token's weight is divided by an exponential number of its own, and the
// largest wins. So what a request gets depends on its own chance and weights alone, and the last
// bits of these decide only where two tokens all but tie.
// Source: Efraimidis and Spirakis 2006 (weighted sampling) §2; Steele et al. 2014 (SplitMix) fig. 14.
#pragma once

#include <cmath>
#include <cstdint>

namespace forebay {

// Scatters 64 bits so that neighbours have nothing in common (SplitMix64's last steps).
inline uint64_t scatter(uint64_t bits) {
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    return bits ^ (bits >> 31);
}

class Race {
  public:
    // key: the request's chance for this token.
    explicit Race(int64_t key) : key_(static_cast<uint64_t>(key)) {}

    // name: a number that no other runner of this race, or of another with the same key, has.
    void enter(int runner, int64_t name, double weight) {
        const uint64_t bits = scatter(key_ + static_cast<uint64_t>(name) * 0x9e3779b97f4a7c15u);
        const double uniform = (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
        // As -log(u) is at least 1 - u, most runners are known to lose without a logarithm.
        if (weight <= best_ * (1.0 - uniform)) return;
        const double score = weight / -std::log(uniform);
        if (score > best_) {
            best_ = score;
            winner_ = runner;
        }
    }

    // The first of the runners where none had a weight.
    int winner() const { return winner_; }

  private:
    uint64_t key_;
    double best_ = 0.0;
    int winner_ = 0;
};

}  // namespace forebay
