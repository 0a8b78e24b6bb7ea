// Threads that share a step's work.
//
// The caller of run() is thread 0 and takes part; it never waits for a worker to arrive, only for
// units that a worker has begun. So a worker that the system has taken off its core costs its
// share of speed and nothing more. Each thread has a share of consecutive units, as what lies side
// by side in memory is read best by one; it claims them one at a time, in order, and then those that
// others have not come to.
#pragma once

namespace forebay {

class Pool {
  public:
    // num_threads: the caller's included; fewer where the system gives no more.
    explicit Pool(int num_threads);
    ~Pool();
    Pool(const Pool&) = delete;
    Pool& operator=(const Pool&) = delete;

    // A bound on the `thread` that units are told.
    int num_threads() const { return num_threads_; }

    // The first unit of a thread's share of num_units.
    int begin_of_share(int num_units, int thread) const {
        return static_cast<int>(static_cast<long long>(num_units) * thread / num_threads_);
    }

    // Call fn(int unit, int thread) once for each unit in [0, num_units), by any thread and in any
    // order, and return when all are done. No unit may call run() itself. Where another caller is
    // within a Session, all units run here, as thread 0.
    template <class Fn>
    void run(int num_units, const Fn& fn) {
        run_erased(
            num_units,
            [](const void* context, int unit, int thread) {
                (*static_cast<const Fn*>(context))(unit, thread);
            },
            &fn);
    }

    // While one stands, workers spin between two run() of the thread that made it; else they sleep.
    class Session {
      public:
        explicit Session(Pool& pool) : pool_(pool), is_own_(pool.begin_session()) {}
        ~Session() {
            if (is_own_) pool_.end_session();
        }
        Session(const Session&) = delete;
        Session& operator=(const Session&) = delete;

      private:
        Pool& pool_;
        bool is_own_;
    };

  private:
    using Call = void (*)(const void* context, int unit, int thread);
    struct State;
    struct Worker;

    void run_erased(int num_units, Call call, const void* context);
    bool begin_session();
    void end_session();
    void start_workers();

    static void* work(void* worker);

    int num_threads_;
    State* state_ = nullptr;
};

}  // namespace forebay
