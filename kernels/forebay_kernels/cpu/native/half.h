// A float16 as a float, for what is not done sixteen at a time.
#pragma once

#include <cstdint>
#include <cstring>

namespace forebay {

// Of a finite number: the exponent is moved by a product, which gets the denormal ones right, too.
inline float from_half(uint16_t half) {
    const uint32_t moved = (half & 0x7fffu) << 13;
    float magnitude;
    std::memcpy(&magnitude, &moved, 4);
    magnitude *= 0x1p112f;
    return half & 0x8000u ? -magnitude : magnitude;
}

}  // namespace forebay
