// Each set's table of products; those that were not compiled are declared, and never called.
#pragma once

#include "products.h"

namespace forebay {
namespace portable {
const Products& table();
}
namespace avx2 {
const Products& table();
}
namespace avx512 {
const Products& table();
}
namespace avx512_vnni {
const Products& table();
}
namespace avx512_bf16 {
const Products& table();
}
}  // namespace forebay
