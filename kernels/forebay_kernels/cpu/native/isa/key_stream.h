// Fetches keys and values into the cache ahead of their use, evenly as an item's work goes on.
//
// A core can wait for few lines of memory at a time, and stands still where more are fetched at
// once. So what is to come, the rest of the item behind its first tile and the first tile of the
// thread's next item, is fetched a key at a time, each of all the item's heads, which lie side by
// side. Only what a thread begins with is fetched at once.
#pragma once

#include <cstdint>

#include "attention_work.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

// The places of a sequence's keys [position, end) one after another.
struct KeyCursor {
    const int32_t* block;
    int position, end, offset, block_size;
    int64_t first_byte, num_bytes;  // of the item's heads, within a slot's

    KeyCursor(const Attention& call, const AttentionItem& item, int begin, int end_)
        : position(begin), end(end_), block_size(call.cache.block_size) {
        block = item.block_table + begin / block_size;
        offset = begin % block_size;
        first_byte = item.kv_head * call.cache.head_bytes();
        num_bytes = item.num_kv_heads * call.cache.head_bytes();
    }
    bool is_at_end() const { return position >= end; }
    int64_t take_slot() {
        const int64_t slot = int64_t{*block} * block_size + offset;
        ++position;
        if (++offset == block_size) {
            offset = 0;
            ++block;
        }
        return slot;
    }
};

class KeyStream {
  public:
    KeyStream(const Attention& call, const AttentionItem& item, const AttentionTurn& turn)
        : cache_(call.cache),
          slot_bytes_(call.cache.num_kv_heads * call.cache.head_bytes()),
          own_(call, item, end_of_first_tile(item), end_of(item)),
          next_(turn.next == nullptr
                    ? KeyCursor(call, item, end_of(item), end_of(item))
                    : KeyCursor(call, *turn.next, begin_of(call, *turn.next),
                                end_of_first_tile(*turn.next))) {
        if (turn.is_first) {
            KeyCursor first(call, item, begin_of(call, item), end_of_first_tile(item));
            while (!first.is_at_end()) fetch_key(first);
        }
        const int num_keys = own_.end - begin_of(call, item);
        num_used_ = int64_t{2} * item.num_kv_heads * num_keys;
        num_fetched_ = own_.end - own_.position + next_.end - next_.position;
        // A short or no next item is no reason to come nearer to what is used.
        if (num_fetched_ < num_keys) num_fetched_ = num_keys;
    }

    // Keys, or values, of one head were used.
    FB_INLINE void use(int num_keys) {
        due_ += num_fetched_ * num_keys;
        while (due_ >= num_used_) {
            due_ -= num_used_;
            KeyCursor& from = own_.is_at_end() ? next_ : own_;
            if (!from.is_at_end()) fetch_key(from);
        }
    }

  private:
    static int begin_of(const Attention& call, const AttentionItem& item) {
        const int seen = call.window == 0 ? 0 : item.first_position - call.window + 1;
        return most(seen, item.first_tile * tile_keys);
    }
    static int end_of(const AttentionItem& item) {
        return least(item.first_position + item.num_tokens, item.end_tile * tile_keys);
    }
    static int end_of_first_tile(const AttentionItem& item) {
        return least((item.first_tile + 1) * tile_keys, end_of(item));
    }

    FB_INLINE void fetch_key(KeyCursor& from) const {
        const int64_t at = from.take_slot() * slot_bytes_ + from.first_byte;
        const uint8_t* key = static_cast<const uint8_t*>(cache_.k) + at;
        const uint8_t* value = static_cast<const uint8_t*>(cache_.v) + at;
        for (int64_t i = 0; i < from.num_bytes; i += 64) {
            __builtin_prefetch(key + i, 0, 2);
            __builtin_prefetch(value + i, 0, 2);
        }
    }

    const KvCache& cache_;
    int64_t slot_bytes_;
    KeyCursor own_, next_;
    int64_t num_fetched_, num_used_, due_ = 0;
};

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
