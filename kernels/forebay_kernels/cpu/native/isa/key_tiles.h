// A tile of keys and values from the cache into scratch: as float32, without the scales of those that
// are quantised, keys turned so that sixteen of them lie side by side.
#pragma once

#include <cstdint>

#include "attention_work.h"
#include "lanes.h"
#include "stored_lanes.h"
#include "stored_numbers.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

// numbers [size] of one head as they are stored, its scale left out.
FB_INLINE void read_head(const void* stored, Number number, int size, float* numbers) {
    switch (number) {
        case Number::float32: {
            const float* from = static_cast<const float*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = from[i];
            return;
        }
        case Number::bfloat16: {
            const uint16_t* from = static_cast<const uint16_t*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = of_bfloat16(from[i]);
            return;
        }
        case Number::float16: {
            const uint16_t* from = static_cast<const uint16_t*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = of_float16(from[i]);
            return;
        }
        case Number::fp8: {
            const uint8_t* from = static_cast<const uint8_t*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = of_fp8(from[i]);
            return;
        }
        case Number::int8: {
            const int8_t* from = static_cast<const int8_t*>(stored);
            for (int i = 0; i < size; ++i) numbers[i] = from[i];
            return;
        }
        case Number::int4: {
            const uint8_t* from = static_cast<const uint8_t*>(stored);
            for (int i = 0; i < size / 2; ++i) {
                numbers[i] = static_cast<float>((from[i] & 15) - 8);
                numbers[size / 2 + i] = static_cast<float>((from[i] >> 4) - 8);
            }
            return;
        }
    }
}

// Where a key and its value lie in the cache, in heads from the first.
FB_INLINE int64_t place_of(const Work& work, int tile, int key) {
    const KvCache& cache = work.call.cache;
    const int position = tile * tile_keys + key;
    const int64_t block = work.item.block_table[position / cache.block_size];
    const int64_t slot = block * cache.block_size + position % cache.block_size;
    return slot * cache.num_kv_heads + work.item.kv_head;
}

// Sixteen keys from `key` on and their values, of which num_keys are there.
struct KeyGroup {
    int key;
    int num_keys;
    const void* keys[16];
    const void* values[16];
};

template <Number number>
FB_INLINE void read_group(const Work& work, const KeyGroup& group) {
    for (int i = 0; i < work.stride; i += 16) {
        Floats rows[16];
        for (int j = 0; j < 16; ++j) {
            rows[j] = j < group.num_keys ? load_stored<number>(group.keys[j], work.head_dim, i)
                                         : zero_floats();
        }
        turn(rows);
        float* to = work.keys + i * tile_keys + group.key;
        for (int j = 0; j < 16; ++j) store(to + j * tile_keys, rows[j]);
    }
    for (int j = 0; j < group.num_keys; ++j) {
        float* to = work.values + (group.key + j) * work.stride;
        for (int i = 0; i < work.stride; i += 16) {
            store(to + i, load_stored<number>(group.values[j], work.head_dim, i));
        }
    }
}

// The same of heads whose size is no multiple of vectors.
void read_odd_group(const Work& work, const KeyGroup& group) {
    const Number number = work.call.cache.number;
    float numbers[max_head_dim];
    for (int j = 0; j < 16; ++j) {
        const bool is_there = j < group.num_keys;
        if (is_there) read_head(group.keys[j], number, work.head_dim, numbers);
        float* to = work.keys + group.key + j;
        for (int i = 0; i < work.head_dim; ++i) to[i * tile_keys] = is_there ? numbers[i] : 0.0f;
        if (!is_there) continue;
        float* value = work.values + (group.key + j) * work.stride;
        read_head(group.values[j], number, work.head_dim, value);
        for (int i = work.head_dim; i < work.stride; ++i) value[i] = 0.0f;
    }
}

void read_any_group(const Work& work, const KeyGroup& group) {
    const Number number = work.call.cache.number;
    const int whole = number == Number::int4 ? 32 : 16;
    if (work.head_dim % whole != 0) return read_odd_group(work, group);
    switch (number) {
        case Number::float32: return read_group<Number::float32>(work, group);
        case Number::bfloat16: return read_group<Number::bfloat16>(work, group);
        case Number::float16: return read_group<Number::float16>(work, group);
        case Number::fp8: return read_group<Number::fp8>(work, group);
        case Number::int8: return read_group<Number::int8>(work, group);
        case Number::int4: return read_group<Number::int4>(work, group);
    }
}

// Keys [begin, end) of a tile and their values into scratch; begin is a multiple of 16, and up to
// the next one behind end keys are zeros.
void read_tile(const Work& work, int tile, int begin, int end) {
    const KvCache& cache = work.call.cache;
    const int64_t bytes = cache.head_bytes();
    for (int key = begin; key < end; key += 16) {
        KeyGroup group = {key, least(16, end - key), {}, {}};
        for (int j = 0; j < group.num_keys; ++j) {
            const int64_t place = place_of(work, tile, key + j);
            group.keys[j] = static_cast<const uint8_t*>(cache.k) + place * bytes;
            group.values[j] = static_cast<const uint8_t*>(cache.v) + place * bytes;
            __builtin_prefetch(group.values[j]);
            if (!work.has_scales()) continue;
            work.k_scales[key + j] = cache.k_scale[place];
            work.v_scales[key + j] = cache.v_scale[place];
        }
        for (int j = group.num_keys; j < 16; ++j) work.k_scales[key + j] = 0.0f;
        for (int j = group.num_keys; j < 16; ++j) work.v_scales[key + j] = 0.0f;
        read_any_group(work, group);
    }
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
