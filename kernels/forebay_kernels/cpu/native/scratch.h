// Memory that a call needs while it runs: one area that its threads share, and one of each thread.
//
// An area grows when more is asked for than ever before, and what it held is gone then. A warm-up
// that runs the largest shapes leaves nothing to be grown later.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

namespace forebay {

class ScratchArea {
public:
    // At least num_bytes, aligned to a line of the cache.
    uint8_t* take(int64_t num_bytes) {
        if (num_bytes > size_) {
            std::free(data_);
            size_ = (num_bytes + alignment - 1) / alignment * alignment;
            data_ = static_cast<uint8_t*>(std::aligned_alloc(alignment, size_));
            if (data_ == nullptr) std::abort();
        }
        return data_;
    }

    ScratchArea() = default;
    ~ScratchArea() { std::free(data_); }
    ScratchArea(const ScratchArea&) = delete;
    ScratchArea& operator=(const ScratchArea&) = delete;

private:
    static constexpr int64_t alignment = 64;
    uint8_t* data_ = nullptr;
    int64_t size_ = 0;
};

class Scratch {
public:
    explicit Scratch(int num_threads) : threads_(new ScratchArea[num_threads]) {}
    ScratchArea& shared() { return shared_; }
    ScratchArea& of_thread(int thread) { return threads_[thread]; }

private:
    ScratchArea shared_;
    std::unique_ptr<ScratchArea[]> threads_;
};

}  // namespace forebay
