// A tile of keys and values from the cache into scratch: as words of the form at hand, without the
// scales of those that are quantised, keys turned so that sixteen of them lie side by side.
#pragma once

#include <cstdint>

#include "attention_form.h"
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

// Sixteen keys of a tile from `first` on, of which [begin, end) are seen; another stands for each of
// those that are not, and no score of these is used.
struct KeyGroup {
    int first, begin, end;
    const uint8_t* keys[16];

    KeyGroup(const TilePlaces& places, int head, int first_)
        : first(first_),
          begin(most(first_, places.begin)),
          end(least(first_ + 16, places.end)) {
        for (int j = 0; j < 16; ++j) {
            keys[j] = places.key(most(begin, least(first + j, end - 1)), head);
        }
    }
};

// How an even head's numbers become words of a form.
template <class Form, Number number>
struct Loading;

template <Number number>
struct Loading<Singles, number> {
    // Words of one key, from its number i on.
    static FB_INLINE Floats key(const void* key, int head_dim, int i) {
        return load_stored<number>(key, head_dim, i);
    }
    // Words of a value's numbers from i on.
    static FB_INLINE Floats values(const TilePlaces& places, int head, int first, int head_dim,
                                   int i) {
        return load_stored<number>(places.value(first, head), head_dim, i);
    }
};

#if defined(FB_HAS_BFLOAT16_DOT)

template <Number number>
struct Loading<Pairs, number> {
    static FB_INLINE Floats key(const void* key, int head_dim, int i) {
        const Floats low = load_stored<number>(key, head_dim, i);
        if (i + 16 == head_dim) return as_floats(pair_neighbours(low, zero_floats()));
        return as_floats(pair_neighbours(low, load_stored<number>(key, head_dim, i + 16)));
    }
    // Of two values, of which one may be no row's, and is then the other.
    static FB_INLINE Ints values(const TilePlaces& places, int head, int first, int head_dim,
                                 int i) {
        const void* even = places.value(most(first, places.begin), head);
        const void* odd = places.value(least(first + 1, places.end - 1), head);
        return pair_lanes(load_stored<number>(even, head_dim, i),
                          load_stored<number>(odd, head_dim, i));
    }
};

#endif

// Sixteen words of each key from number i on, turned; fewer at a head's end.
template <class Form, Number number>
FB_INLINE void load_turned(const KeyGroup& group, int head_dim, int i, Floats* rows) {
    for (int j = 0; j < 16; ++j) rows[j] = Loading<Form, number>::key(group.keys[j], head_dim, i);
    turn(rows);
}

// The words of a head from number i on, at most those of a vector.
template <class Form>
FB_INLINE int words_from(int head_dim, int i) {
    return least(16, (head_dim - i) / Form::depth);
}

template <class Form, Number number>
FB_INLINE void read_group(const Work& work, const TilePlaces& places, const KeyGroup& group) {
    using Load = Loading<Form, number>;
    for (int i = 0; i < work.head_dim; i += 16 * Form::depth) {
        Floats rows[16];
        load_turned<Form, number>(group, work.head_dim, i, rows);
        float* to = work.keys + i / Form::depth * tile_keys + group.first;
        const int num_words = words_from<Form>(work.head_dim, i);
        for (int j = 0; j < num_words; ++j) store(to + j * tile_keys, rows[j]);
    }
    for (int word = group.begin / Form::depth; word * Form::depth < group.end; ++word) {
        float* to = work.values + word * work.stride;
        for (int i = 0; i < work.head_dim; i += 16) {
            Form::store_words(to + i, Load::values(places, work.kv_head, word * Form::depth,
                                                   work.head_dim, i));
        }
    }
}

// The same of heads whose size is no multiple of vectors.
void read_odd_group(const Work& work, const TilePlaces& places, const KeyGroup& group) {
    const Number number = work.call.cache.number;
    float numbers[max_head_dim];
    for (int j = 0; j < 16; ++j) {
        read_head(group.keys[j], number, work.head_dim, numbers);
        float* to = work.keys + group.first + j;
        for (int i = 0; i < work.head_dim; ++i) to[i * tile_keys] = numbers[i];
    }
    for (int key = group.begin; key < group.end; ++key) {
        float* value = work.values + key * work.stride;
        read_head(places.value(key, work.kv_head), number, work.head_dim, value);
        for (int i = work.head_dim; i < work.stride; ++i) value[i] = 0.0f;
    }
}

template <class Form>
void read_any_group(const Work& work, const TilePlaces& places, const KeyGroup& group) {
    const Number number = work.call.cache.number;
    if (Form::depth == 1 && !has_even_heads(work.call.cache)) {
        return read_odd_group(work, places, group);
    }
    switch (number) {
        case Number::float32: return read_group<Form, Number::float32>(work, places, group);
        case Number::bfloat16: return read_group<Form, Number::bfloat16>(work, places, group);
        case Number::float16: return read_group<Form, Number::float16>(work, places, group);
        case Number::fp8: return read_group<Form, Number::fp8>(work, places, group);
        case Number::int8: return read_group<Form, Number::int8>(work, places, group);
        case Number::int4: return read_group<Form, Number::int4>(work, places, group);
    }
}

// The scales of a tile's keys and values, zeros up to the next multiple of 16.
FB_INLINE void read_scales(const Work& work, const TilePlaces& places) {
    if (!work.has_scales()) return;
    for (int key = places.begin; key < places.end; ++key) {
        const int64_t place = places.place[key] + work.kv_head;
        work.k_scales[key] = work.call.cache.k_scale[place];
        work.v_scales[key] = work.call.cache.v_scale[place];
    }
    const int first = places.begin / 16 * 16;
    for (int key = first; key < places.begin; ++key) work.k_scales[key] = work.v_scales[key] = 0.0f;
    for (int key = places.end; key % 16 != 0; ++key) work.k_scales[key] = work.v_scales[key] = 0.0f;
}

// A tile's keys and values into scratch.
template <class Form>
void read_tile(const Work& work, const TilePlaces& places) {
    for (int first = places.begin / 16 * 16; first < places.end; first += 16) {
        const KeyGroup group(places, work.kv_head, first);
        for (int key = group.begin; key < group.end; ++key) {
            __builtin_prefetch(places.value(key, work.kv_head));
        }
        read_any_group<Form>(work, places, group);
    }
}

}  // namespace
}  // namespace FOREBAY_ISA
}  // namespace forebay
