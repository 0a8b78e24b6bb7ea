// Rows that threads share.
#pragma once

#include "pool.h"

namespace forebay {

// fn(int row) for each row, on the pool, or here where there is none.
template <class Fn>
void for_each_row(Pool* pool, int num_rows, const Fn& fn) {
    if (pool != nullptr) {
        pool->run(num_rows, [&](int row, int) { fn(row); });
        return;
    }
    for (int row = 0; row < num_rows; ++row) fn(row);
}

}  // namespace forebay
