// OCTET_AVX2(name) and so on: the address of a target's entity, or null where the target is not compiled. For the
// once-compiled section of a kernel file, after hwy/highway.h.
#pragma once

#if HWY_TARGETS & HWY_AVX2
#define OCTET_AVX2(name) &N_AVX2::name
#else
#define OCTET_AVX2(name) nullptr
#endif
#if HWY_TARGETS & HWY_AVX3
#define OCTET_AVX512(name) &N_AVX3::name
#else
#define OCTET_AVX512(name) nullptr
#endif
