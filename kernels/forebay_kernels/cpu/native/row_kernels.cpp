#include "row_kernels.h"

#include "isa_table.h"

namespace forebay {

FB_CHOOSE_TABLE(RowKernels, row_kernels)

}  // namespace forebay
