// The products of the instructions in use.
#include "products.h"

#include "isa.h"
#include "products_by_isa.h"

namespace forebay {

const Products& products() {
    switch (isa()) {
        case Isa::portable: break;
        case Isa::avx2:
#ifdef FOREBAY_HAS_AVX2
            return avx2::table();
#else
            break;
#endif
        case Isa::avx512:
#ifdef FOREBAY_HAS_AVX512
            return avx512::table();
#else
            break;
#endif
        case Isa::avx512_vnni:
#ifdef FOREBAY_HAS_AVX512_VNNI
            return avx512_vnni::table();
#else
            break;
#endif
        case Isa::avx512_bf16:
#ifdef FOREBAY_HAS_AVX512_BF16
            return avx512_bf16::table();
#else
            break;
#endif
    }
    return portable::table();
}

}  // namespace forebay
