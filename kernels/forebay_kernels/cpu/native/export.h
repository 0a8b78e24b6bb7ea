// What is seen from outside of the library: C functions, by names that begin with fb_.
#pragma once

#define FB_EXPORT extern "C" __attribute__((visibility("default")))
