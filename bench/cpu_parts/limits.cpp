// The machine's own limits: how fast memory is read, and how fast numbers are multiplied.
//
// Compiled by limits.py for the processor that it runs on, and no part of what is shipped. Each
// function runs its work on num_threads threads that begin together, repeats that, and gives the
// least seconds of one repeat: what is asked for is what the machine can do.
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <thread>
#include <vector>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
}

// All of `count` threads leave arrive() together; usable again at once.
class Barrier {
  public:
    explicit Barrier(int count) : count_(count) {}
    void arrive() {
        const int turn = turn_.load();
        if (arrived_.fetch_add(1) + 1 == count_) {
            arrived_.store(0);
            turn_.fetch_add(1);
            return;
        }
        while (turn_.load() == turn) std::this_thread::yield();
    }

  private:
    const int count_;
    std::atomic<int> arrived_{0};
    std::atomic<int> turn_{0};
};

template <class Work>
double least_seconds(int num_threads, int repeats, const Work& work) {
    Barrier barrier(num_threads);
    double least = 1e30;
    const auto run = [&](int thread) {
        for (int repeat = 0; repeat < repeats; ++repeat) {
            barrier.arrive();
            const auto start = Clock::now();
            work(thread);
            barrier.arrive();
            if (thread == 0 && seconds_since(start) < least) least = seconds_since(start);
        }
    };
    std::vector<std::thread> others;
    for (int thread = 1; thread < num_threads; ++thread) others.emplace_back(run, thread);
    run(0);
    for (auto& other : others) other.join();
    return least;
}

// GCC's and clang's own vectors, as wide as the processor's registers.
#if defined(__AVX512F__)
constexpr int kBytes = 64;
#elif defined(__AVX__)
constexpr int kBytes = 32;
#else
constexpr int kBytes = 16;
#endif
typedef int64_t Words __attribute__((vector_size(kBytes)));
typedef float Floats __attribute__((vector_size(kBytes)));

template <class Vector>
void keep(Vector& value) {
#if defined(__x86_64__)
    asm volatile("" : "+x"(value));
#else
    asm volatile("" : "+w"(value));
#endif
}

// Eight streams' sums, so that no addition waits for the one before it.
int64_t read_all(const char* data, int64_t num_bytes) {
    Words sums[8] = {};
    for (int64_t at = 0; at + 8 * kBytes <= num_bytes; at += 8 * kBytes)
        for (int i = 0; i < 8; ++i) {
            Words word;
            std::memcpy(&word, data + at + i * kBytes, kBytes);
            sums[i] ^= word;
        }
    for (int i = 1; i < 8; ++i) sums[0] ^= sums[i];
    int64_t sum = 0;
    for (int i = 0; i < kBytes / 8; ++i) sum ^= sums[0][i];
    return sum;
}

constexpr int kChains = 14;  // products in flight; with a factor each they fit 16 registers
constexpr int kRounds = 100000;

// Calls step(value) on kChains values that stay in registers, kRounds times. A function of its own:
// where it is inlined, compilers keep the values in memory.
template <class Vector, class Step>
__attribute__((noinline)) void multiply(Step step) {
    Vector values[kChains] = {};
    for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 14
        for (int i = 0; i < kChains; ++i) values[i] = step(values[i]);
#pragma GCC unroll 14
        for (int i = 0; i < kChains; ++i) keep(values[i]);
    }
}

template <class Vector, class Step>
double operations_per_second(int num_threads, int repeats, int per_step, const Step& step) {
    const double seconds =
        least_seconds(num_threads, repeats, [&](int) { multiply<Vector>(step); });
    return double(num_threads) * kRounds * kChains * per_step / seconds;
}

}  // namespace

extern "C" {

// data: num_bytes, which are read in equal parts by each thread.
double limit_read_seconds(const char* data, int64_t num_bytes, int num_threads, int repeats) {
    const int64_t part = num_bytes / num_threads;
    std::atomic<int64_t> sink{0};
    return least_seconds(num_threads, repeats,
                         [&](int thread) { sink ^= read_all(data + thread * part, part); });
}

// Multiplications and additions of float32 a second, each counted.
double limit_float32(int num_threads, int repeats) {
    Floats factor = {}, added = {};
    for (int i = 0; i < kBytes / 4; ++i) factor[i] = 0.999f, added[i] = 0.5f;
    return operations_per_second<Floats>(num_threads, repeats, 2 * kBytes / 4,
                                         [=](Floats value) { return value * factor + added; });
}

// The same of bfloat16, summed in float32; 0 where the processor has no such instruction.
double limit_bf16(int num_threads, int repeats) {
#if defined(__AVX512BF16__)
    const __m512bh factor = (__m512bh)_mm512_set1_epi16(0x3f00);
    return operations_per_second<__m512>(
        num_threads, repeats, 64,
        [=](__m512 value) { return _mm512_dpbf16_ps(value, factor, factor); });
#else
    (void)num_threads, (void)repeats;
    return 0;
#endif
}

// The same of 8-bit numbers, summed in 32 bits, by the processor's best instruction for it.
double limit_int8(int num_threads, int repeats) {
#if defined(__AVX512VNNI__)
    const __m512i factor = _mm512_set1_epi8(3);
    return operations_per_second<__m512i>(
        num_threads, repeats, 128,
        [=](__m512i value) { return _mm512_dpbusd_epi32(value, factor, factor); });
#elif defined(__AVX2__)
    const __m256i factor = _mm256_set1_epi8(3), ones = _mm256_set1_epi16(1);
    return operations_per_second<__m256i>(num_threads, repeats, 64, [=](__m256i value) {
        __m256i left = factor;
        keep(left);
        const __m256i pairs = _mm256_maddubs_epi16(left, factor);
        return _mm256_add_epi32(value, _mm256_madd_epi16(pairs, ones));
    });
#else
    (void)num_threads, (void)repeats;
    return 0;
#endif
}

}  // extern "C"
