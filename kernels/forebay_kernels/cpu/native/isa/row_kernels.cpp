// Norms, gates, rotation and the cache write, one row at a time. Loops without branches, which the
// compiler turns into the vectors of the set that it is told.
#include "../row_kernels.h"

#include "exp_lanes.h"
#include "functions.h"
#include "lanes.h"
#include "stored_numbers.h"

namespace forebay {
namespace FOREBAY_ISA {
namespace {

// Partial sums of a row: enough for the longest vectors to overlap.
constexpr int num_partial = 64;

float sum_of_squares(const float* x, int width) {
    float partial[num_partial] = {};
    int i = 0;
    for (; i + num_partial <= width; i += num_partial) {
        for (int lane = 0; lane < num_partial; ++lane) partial[lane] += x[i + lane] * x[i + lane];
    }
    for (int lane = 0; i + lane < width; ++lane) partial[lane] += x[i + lane] * x[i + lane];
    for (int half = num_partial / 2; half > 0; half /= 2) {
        for (int lane = 0; lane < half; ++lane) partial[lane] += partial[half + lane];
    }
    return partial[0];
}

float inverse_root_mean_square(const float* x, int width, float eps) {
    const float mean = sum_of_squares(x, width) / static_cast<float>(width);
    return 1.0f / __builtin_sqrtf(mean + eps);
}

void rms_norm(const float* x, const float* weight, int width, float eps, float* out) {
    const float scale = inverse_root_mean_square(x, width, eps);
    for (int i = 0; i < width; ++i) out[i] = x[i] * scale * weight[i];
}

void widen(const void* stored, Number number, int width, float scale, float* out) {
    if (number == Number::float32) {
        const float* from = static_cast<const float*>(stored);
        for (int i = 0; i < width; ++i) out[i] = from[i] * scale;
    } else if (number == Number::bfloat16) {
        const uint16_t* from = static_cast<const uint16_t*>(stored);
        for (int i = 0; i < width; ++i) out[i] = of_bfloat16(from[i]) * scale;
    } else {
        const uint16_t* from = static_cast<const uint16_t*>(stored);
        for (int i = 0; i < width; ++i) out[i] = of_float16(from[i]) * scale;
    }
}

void add(const float* x, int width, float* to) {
    for (int i = 0; i < width; ++i) to[i] += x[i];
}

// x / (1 + exp(-u)) * up. Of gelu, 0.5 * (1 + tanh(v)) is 1 / (1 + exp(-2 * v)).
template <Gate gate>
FB_INLINE Floats gated(Floats x, Floats up) {
    Floats inner = x;
    if (gate == Gate::gelu_tanh) {
        const Floats cubed = mul(mul(mul(spread(0.044715f), x), x), x);
        inner = mul(spread(1.59576912f), add(x, cubed));
    }
    // exp takes no more than 88; of what is no number, the second operand is the larger.
    const Floats power = mul(larger(spread(-88.0f), inner), spread(-1.0f));
    return mul(divide(x, add(spread(1.0f), exp_lanes(power))), up);
}

template <Gate gate>
FB_INLINE void gate_rows(const float* gate_up, int width, float* out) {
    const float* up = gate_up + width;
    int i = 0;
    for (; i + 16 <= width; i += 16) {
        store(out + i, gated<gate>(load(gate_up + i), load(up + i)));
    }
    if (i == width) return;
    const int num = width - i;
    store_first(out + i, gated<gate>(load_first(gate_up + i, num), load_first(up + i, num)), num);
}

void gate_mul(const float* gate_up, Gate gate, int width, float* out) {
    if (gate == Gate::silu) {
        gate_rows<Gate::silu>(gate_up, width, out);
    } else {
        gate_rows<Gate::gelu_tanh>(gate_up, width, out);
    }
}

void softcap(float* x, int width, float cap) {
    const float inverse = 1.0f / cap;
    for (int i = 0; i < width; ++i) x[i] = cap * tanh_of(x[i] * inverse);
}

void scale(float* x, int width, float factor) {
    for (int i = 0; i < width; ++i) x[i] *= factor;
}

bool is_finite(const float* x, int width) {
    uint32_t num_broken = 0;
    for (int i = 0; i < width; ++i) num_broken += (to_bits(x[i]) & 0x7f800000u) == 0x7f800000u;
    return num_broken == 0;
}

// cos, sin, x, out [size]
FB_ALWAYS_INLINE void rotate(const float* x, const float* cos, const float* sin, int size,
                             float* out) {
    const int half = size / 2;
    int i = 0;
    for (; i + 16 <= half; i += 16) {
        const Floats first = load(x + i), second = load(x + half + i);
        store(out + i, add(mul(first, load(cos + i)), mul(second, load(sin + i))));
        store(out + half + i,
              add(mul(second, load(cos + half + i)), mul(first, load(sin + half + i))));
    }
    for (; i < half; ++i) {
        const float first = x[i], second = x[half + i];
        out[i] = first * cos[i] + second * sin[i];
        out[half + i] = second * cos[half + i] + first * sin[half + i];
    }
}

// A head through its norm, where it has one, and the rotation: x, out [head_dim].
void turn_head(const RotateAndWrite& call, const float* x, int head, int64_t position,
               float* out) {
    const int size = call.cache.head_dim, rotated = call.rotated_size;
    float normed[max_head_dim];
    if (call.norm_weight != nullptr) {
        rms_norm(x, call.norm_weight + int64_t{head} * size, size, call.eps, normed);
        x = normed;
    }
    const int64_t row = position * rotated;
    rotate(x, call.cos + row, call.sin + row, rotated, out);
    for (int i = rotated; i < size; ++i) out[i] = x[i];
}

void write_head(const KvCache& cache, void* stored, float* scales, int64_t place, float* numbers) {
    for (int i = 0; i < cache.head_dim; ++i) numbers[i] = finite(numbers[i]);
    void* to = static_cast<uint8_t*>(stored) + place * cache.head_bytes();
    const float scale = store_head(numbers, cache.head_dim, cache.number, to);
    if (scales != nullptr) scales[place] = scale;
}

void rotate_and_write(const RotateAndWrite& call, const float* qkv, int64_t position, int64_t slot,
                      float* queries) {
    const KvCache& cache = call.cache;
    const int size = cache.head_dim, num_kv_heads = cache.num_kv_heads;
    for (int head = 0; head < call.num_heads; ++head) {
        turn_head(call, qkv + head * size, head, position, queries + head * size);
    }
    if (slot < 0) return;
    const float* keys = qkv + int64_t{call.num_heads} * size;
    const float* values = keys + int64_t{num_kv_heads} * size;
    float numbers[max_head_dim];
    for (int head = 0; head < num_kv_heads; ++head) {
        const int64_t place = slot * num_kv_heads + head;
        turn_head(call, keys + head * size, call.num_heads + head, position, numbers);
        write_head(cache, cache.k, cache.k_scale, place, numbers);
        for (int i = 0; i < size; ++i) numbers[i] = values[head * size + i];
        write_head(cache, cache.v, cache.v_scale, place, numbers);
    }
}

}  // namespace

extern const RowKernels row_kernels_table;
const RowKernels row_kernels_table = {widen,   rms_norm, add,       gate_mul,
                                      softcap, scale,    is_finite, rotate_and_write};

}  // namespace FOREBAY_ISA
}  // namespace forebay
