// The products of the instructions in use.
#include "products.h"

#include "isa_table.h"

namespace forebay {

FB_CHOOSE_TABLE(Products, products)

}  // namespace forebay
