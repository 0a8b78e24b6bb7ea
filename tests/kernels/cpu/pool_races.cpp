// Runs pools of threads in every way that their callers do, for a race detector to watch.
#include <cstdint>
#include <cstdio>
#include <thread>
#include <vector>

#include "pool.h"

namespace {

// Whether each of num_units was run num_runs times, and what a run wrote was seen by the next.
bool counts_units(forebay::Pool& pool, int num_runs, int num_units) {
    std::vector<int64_t> counts(num_units, 0), sums(num_units, 0);
    {
        const forebay::Pool::Session session(pool);
        for (int run = 0; run < num_runs; ++run) {
            pool.run(num_units, [&](int unit, int) { ++counts[unit]; });
            pool.run(num_units, [&](int unit, int) { sums[unit] += counts[num_units - 1 - unit]; });
        }
    }
    pool.run(num_units, [&](int unit, int) { ++counts[unit]; });
    for (int unit = 0; unit < num_units; ++unit) {
        if (counts[unit] != num_runs + 1) return false;
        if (sums[unit] != int64_t{num_runs} * (num_runs + 1) / 2) return false;
    }
    return true;
}

}  // namespace

int main() {
    bool is_right = true;
    for (int num_threads = 1; num_threads < 7; ++num_threads) {
        forebay::Pool pool(num_threads);
        for (int num_units : {1, 2, 7, 40}) is_right &= counts_units(pool, 1500, num_units);
    }
    forebay::Pool shared(3);
    std::vector<std::thread> callers;
    std::vector<char> results(4, 0);
    for (int caller = 0; caller < 4; ++caller) {
        callers.emplace_back([&, caller] { results[caller] = counts_units(shared, 2000, 5); });
    }
    for (std::thread& caller : callers) caller.join();
    for (char result : results) is_right &= result != 0;
    std::puts(is_right ? "every unit was run once" : "a unit was not run once");
    return is_right ? 0 : 1;
}
