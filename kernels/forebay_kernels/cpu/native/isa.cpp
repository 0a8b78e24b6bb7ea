// Chooses the set of instructions, by what the processor and this build have.
#include "isa.h"

#include <atomic>

#include "export.h"
#include "isa_table.h"

namespace forebay {
namespace {

constexpr const char* names[num_isas] = {"portable", "avx2", "avx512", "avx512_vnni",
                                         "avx512_bf16"};

bool is_compiled(Isa isa) {
    switch (isa) {
        case Isa::portable: return true;
        FB_WITH_AVX2(case Isa::avx2 : return true;)
        FB_WITH_AVX512(case Isa::avx512 : return true;)
        FB_WITH_AVX512_VNNI(case Isa::avx512_vnni : return true;)
        FB_WITH_AVX512_BF16(case Isa::avx512_bf16 : return true;)
        default: return false;
    }
}

bool is_on_processor(Isa isa) {
    if (isa == Isa::portable) return true;
#if defined(__x86_64__)
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                            __builtin_cpu_supports("avx512bw") &&
                            __builtin_cpu_supports("avx512vl") &&
                            __builtin_cpu_supports("avx512dq");
    const bool has_vnni = has_avx512 && __builtin_cpu_supports("avx512vnni");
    switch (isa) {
        case Isa::portable: return true;
        case Isa::avx2: return has_avx2;
        case Isa::avx512: return has_avx512;
        case Isa::avx512_vnni: return has_vnni;
        case Isa::avx512_bf16: return has_vnni && __builtin_cpu_supports("avx512bf16");
    }
#endif
    return false;
}

bool is_usable(Isa isa) { return is_compiled(isa) && is_on_processor(isa); }

Isa best() {
    for (int i = num_isas - 1; i > 0; --i) {
        if (is_usable(static_cast<Isa>(i))) return static_cast<Isa>(i);
    }
    return Isa::portable;
}

std::atomic<Isa> chosen{best()};

}  // namespace

Isa isa() { return chosen.load(std::memory_order_relaxed); }

}  // namespace forebay

// The name of a set by its number; null past the last.
FB_EXPORT const char* fb_isa_name(int index) {
    return index >= 0 && index < forebay::num_isas ? forebay::names[index] : nullptr;
}

// Whether this processor and this build have a set.
FB_EXPORT int fb_isa_is_usable(int index) {
    return index >= 0 && index < forebay::num_isas &&
           forebay::is_usable(static_cast<forebay::Isa>(index));
}

// The number of the set in use.
FB_EXPORT int fb_isa() { return static_cast<int>(forebay::isa()); }

// Use a set that is usable from now on.
FB_EXPORT void fb_use_isa(int index) { forebay::chosen = static_cast<forebay::Isa>(index); }
