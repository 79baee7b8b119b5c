#include "cpu/product_blas.hpp"

#include <cblas.h>

#include <cstdlib>
#include <initializer_list>
#include <mutex>
#include <string_view>

#include "core/parallel.hpp"

// OpenBLAS's own start-up, which a build with run-time dispatch exports. Weak: another build has none and needs none.
extern "C" {
[[gnu::weak]] void gotoblas_dynamic_init();
[[gnu::weak]] void gotoblas_dynamic_quit();
}

namespace octet::cpu {
namespace {

const char* core_variable = "OPENBLAS_CORETYPE";

// An OpenBLAS older than the processor does not know its model number and falls back to kernels for SSE3, 3 to 5 times
// slower than the vector units allow (0.3.21 on Emerald Rapids). Its start-up is run again with the family named.
// An explicit choice in the environment is respected.
void choose_kernels() {
#if defined(__x86_64__)
    if (gotoblas_dynamic_init == nullptr || gotoblas_dynamic_quit == nullptr) return;
    if (std::getenv(core_variable) != nullptr) return;
    for (const std::string_view wide : {"Haswell", "Zen", "SkylakeX", "Cooperlake", "SapphireRapids"})
        if (wide == openblas_get_corename()) return;
    __builtin_cpu_init();
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                        __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    if (!avx512 && !avx2) return;
    setenv(core_variable, avx512 ? "SkylakeX" : "Haswell", 1);
    gotoblas_dynamic_quit();
    gotoblas_dynamic_init();
    unsetenv(core_variable);
#endif
}

std::mutex scope_mutex;
int scopes = 0;          // guarded by scope_mutex
int threads_before = 0;  // guarded by scope_mutex

}  // namespace

SingleThreadedBlas::SingleThreadedBlas() {
    static std::once_flag chosen;
    std::call_once(chosen, choose_kernels);
    const std::lock_guard lock(scope_mutex);
    if (scopes++ > 0) return;
    threads_before = openblas_get_num_threads();
    openblas_set_num_threads(1);
}

SingleThreadedBlas::~SingleThreadedBlas() {
    const std::lock_guard lock(scope_mutex);
    if (--scopes == 0) openblas_set_num_threads(threads_before);
}

void blas_multiply(std::int64_t m, std::int64_t n, std::int64_t reduction, const BlasMatrix& a, const BlasMatrix& b,
                   Chunk chunk, float* c, std::int64_t c_step) {
    const auto size = [](std::int64_t value) { return static_cast<blasint>(value); };
    cblas_sgemm(CblasRowMajor, a.lies == Lies::along_reduction ? CblasNoTrans : CblasTrans,
                b.lies == Lies::along_reduction ? CblasTrans : CblasNoTrans, size(m), size(n), size(reduction), 1.0f,
                a.data, size(a.step), b.data, size(b.step), chunk == Chunk::first ? 0.0f : 1.0f, c, size(c_step));
}

void blas_dense(std::int64_t m, std::int64_t n, std::int64_t k, const float* a, const float* b, float* c, int threads) {
    { const SingleThreadedBlas chosen; }  // the kernels that our products use
    const int before = openblas_get_num_threads();
    openblas_set_num_threads(thread_count(threads));
    blas_multiply(m, n, k, {a, k, Lies::along_reduction}, {b, k, Lies::along_reduction}, Chunk::first, c, n);
    openblas_set_num_threads(before);
}

const char* blas_kernels() {
    const SingleThreadedBlas chosen;
    return openblas_get_corename();
}

}  // namespace octet::cpu
