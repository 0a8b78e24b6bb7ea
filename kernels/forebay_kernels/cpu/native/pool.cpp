#include "pool.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <vector>

#include "export.h"

namespace forebay {
namespace {

// Looks before a thread gives its core to others: some tens of microseconds, which is longer than
// anything that a step computes on one thread alone.
constexpr int num_spins = 2000;
constexpr int num_yields = 16;

void pause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

// How often this process is a fork's child: threads do not live on in one.
std::atomic<uint32_t> num_forks{0};

void count_forks() {
    static const int registered =
        pthread_atfork(nullptr, nullptr, [] { num_forks.fetch_add(1, std::memory_order_relaxed); });
    (void)registered;
}

constexpr uint64_t unit_mask = 0xffffffffu;

// Units of one thread's share that nobody has claimed: the work's number (high half), and how many.
struct alignas(64) Share {
    std::atomic<uint64_t> left{0};
    // Behind its last one; written before `left`, read by who has claimed one.
    int end = 0;
};

}  // namespace

// What threads share. A fork's child leaves it as it is and makes its own, as a lock in it may be
// held by a thread that is no more.
struct Pool::State {
    // Of the work at hand: written by the caller before shares, read by who has claimed a unit.
    Call call = nullptr;
    const void* context = nullptr;
    int num_units = 0;

    // Of each thread, the caller first.
    std::vector<Share> shares;
    // The last work that was shared out.
    alignas(64) std::atomic<uint32_t> number{0};
    // Units of it that are done.
    alignas(64) std::atomic<int> num_done{0};
    alignas(64) std::atomic<bool> is_open{false};
    std::atomic<bool> is_stopping{false};
    // Workers that a notification would wake; changed under the mutex.
    std::atomic<int> num_asleep{0};
    // The thread that has the session, while it is taken.
    std::atomic<bool> is_taken{false};
    std::atomic<pthread_t> owner{};

    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    std::vector<pthread_t> threads;
    std::vector<Worker> workers;
    uint32_t born_at = num_forks.load(std::memory_order_relaxed);

    bool is_lost() const { return born_at != num_forks.load(std::memory_order_relaxed); }

    void share_out(const Pool& pool, int units, Call fn, const void* with) {
        call = fn;
        context = with;
        num_units = units;
        num_done.store(0, std::memory_order_relaxed);
        const uint32_t next = number.load(std::memory_order_relaxed) + 1;
        int begin = 0;
        for (size_t thread = 0; thread < shares.size(); ++thread) {
            const int end = pool.begin_of_share(units, static_cast<int>(thread) + 1);
            shares[thread].end = end;
            shares[thread].left.store(uint64_t{next} << 32 | static_cast<uint32_t>(end - begin),
                                      std::memory_order_release);
            begin = end;
        }
        number.store(next);
    }

    // Runs a share's units until none is unclaimed. What a thread claims is of one work: as long as
    // its own units are not told to be done, the caller begins no other.
    int run_share(int owner, int thread) {
        std::atomic<uint64_t>& left = shares[owner].left;
        int num_run = 0;
        uint64_t seen = left.load(std::memory_order_acquire);
        while ((seen & unit_mask) != 0) {
            if (!left.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                            std::memory_order_acquire)) {
                continue;
            }
            call(context, shares[owner].end - static_cast<int>(seen & unit_mask), thread);
            ++num_run;
            seen = left.load(std::memory_order_acquire);
        }
        return num_run;
    }

    // Its own share, then what others have left of theirs.
    void run_units(int thread) {
        const int num_shares = static_cast<int>(shares.size());
        int num_run = 0;
        for (int step = 0; step < num_shares; ++step) {
            num_run += run_share((thread + step) % num_shares, thread);
        }
        if (num_run > 0) num_done.fetch_add(num_run, std::memory_order_acq_rel);
    }

    void wake() {
        if (num_asleep.load() == 0) return;
        pthread_mutex_lock(&mutex);
        num_asleep.store(0);
        pthread_cond_broadcast(&changed);
        pthread_mutex_unlock(&mutex);
    }

    // Until something changes; not at all if work came after what was seen, or a session began since
    // was_open.
    void sleep(uint32_t seen, bool was_open) {
        pthread_mutex_lock(&mutex);
        num_asleep.fetch_add(1);
        if (number.load() != seen || is_stopping.load() || (!was_open && is_open.load())) {
            num_asleep.fetch_sub(1);
        } else {
            pthread_cond_wait(&changed, &mutex);
        }
        pthread_mutex_unlock(&mutex);
    }
};

struct Pool::Worker {
    State* state;
    int thread;
};

Pool::Pool(int num_threads) : num_threads_(num_threads < 1 ? 1 : num_threads) {
    count_forks();
    start_workers();
}

Pool::~Pool() {
    if (state_->is_lost()) return;
    state_->is_stopping = true;
    state_->wake();
    for (pthread_t thread : state_->threads) pthread_join(thread, nullptr);
    delete state_;
}

void Pool::start_workers() {
    state_ = new State;
    state_->workers.resize(num_threads_);
    state_->shares = std::vector<Share>(num_threads_);
    // Signals are for the threads of the program that the library is in.
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    for (int thread = 1; thread < num_threads_; ++thread) {
        state_->workers[thread] = {state_, thread};
        pthread_t id;
        if (pthread_create(&id, nullptr, work, &state_->workers[thread]) != 0) break;
        state_->threads.push_back(id);
    }
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void* Pool::work(void* worker) {
    State& state = *static_cast<Worker*>(worker)->state;
    const int thread = static_cast<Worker*>(worker)->thread;
    while (!state.is_stopping.load(std::memory_order_relaxed)) {
        const uint32_t seen = state.number.load();
        state.run_units(thread);
        const bool is_open = state.is_open.load();
        for (int look = 0; is_open && look < num_spins + num_yields; ++look) {
            if (state.number.load(std::memory_order_relaxed) != seen) break;
            if (!state.is_open.load(std::memory_order_relaxed)) break;
            look < num_spins ? pause() : static_cast<void>(sched_yield());
        }
        if (state.number.load() == seen) state.sleep(seen, is_open);
    }
    return nullptr;
}

bool Pool::begin_session() {
    if (state_->is_lost()) start_workers();
    State& state = *state_;
    bool is_taken = false;
    if (!state.is_taken.compare_exchange_strong(is_taken, true)) return false;
    state.owner.store(pthread_self());
    if (num_threads_ > 1) {
        state.is_open.store(true);
        state.wake();
    }
    return true;
}

void Pool::end_session() {
    state_->is_open.store(false);
    state_->owner.store(pthread_t{});
    state_->is_taken.store(false);
}

void Pool::run_erased(int num_units, Call call, const void* context) {
    State& state = *state_;
    const bool is_within = state.owner.load(std::memory_order_relaxed) == pthread_self();
    const bool is_shared = num_threads_ > 1 && num_units > 1;
    if (is_shared && !is_within && begin_session()) {
        run_erased(num_units, call, context);
        end_session();
        return;
    }
    if (!is_shared || !is_within) {
        for (int unit = 0; unit < num_units; ++unit) call(context, unit, 0);
        return;
    }
    state.share_out(*this, num_units, call, context);
    state.wake();
    state.run_units(0);
    int look = 0;
    while (state.num_done.load(std::memory_order_acquire) < num_units) {
        if (look < num_spins) {
            ++look;
            pause();
        } else {
            sched_yield();
        }
    }
}

}  // namespace forebay

// Threads for one engine. Freed by fb_delete_pool.
FB_EXPORT forebay::Pool* fb_new_pool(int num_threads) { return new forebay::Pool(num_threads); }

// Nothing may run on it, nor later.
FB_EXPORT void fb_delete_pool(forebay::Pool* pool) { delete pool; }

// Nanoseconds that num_runs runs of num_units took, each unit of which adds one to its counter and
// then looks at it num_reads times: what sharing work costs here. counters: [num_units].
FB_EXPORT int64_t fb_time_pool(forebay::Pool* pool, int num_runs, int num_units, int num_reads,
                               int64_t* counters) {
    const auto start = std::chrono::steady_clock::now();
    {
        forebay::Pool::Session session(*pool);
        for (int run = 0; run < num_runs; ++run) {
            pool->run(num_units, [&](int unit, int) {
                volatile int64_t& counter = counters[unit];
                counter = counter + 1;
                for (int read = 0; read < num_reads; ++read) {
                    [[maybe_unused]] const int64_t value = counter;
                }
            });
        }
    }
    const auto taken = std::chrono::steady_clock::now() - start;
    return std::chrono::duration_cast<std::chrono::nanoseconds>(taken).count();
}
