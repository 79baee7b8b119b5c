"""DeepGEMM's grouped product of fp8_blockwise operands as a peer on a Hopper GPU.

Its groups are multiples of 128 rows. It compiles a kernel for every shape when it is first called, some seconds each:
DG_JIT_CACHE_DIR, DeepGEMM's own, names the folder that keeps them."""
import os
import sys


def product():
    """DeepGEMM's product out[M, N] of a[M, K] and w[E, N, K], e4m3, with the scales sa[K/128, M] and sw[E, N/128, K/128] and the
    expert of every row [M] int32; None, and why is said, where there is no DeepGEMM. PEERS_DEEPGEMM names a folder that holds
    it (deep_gemm with its extension built), where it is not installed."""
    if os.environ.get("PEERS_DEEPGEMM"):
        sys.path.insert(0, os.environ["PEERS_DEEPGEMM"])
    try:
        from deep_gemm import m_grouped_fp8_gemm_nt_contiguous as grouped
    except Exception as error:
        print(f"DeepGEMM is not timed: {type(error).__name__}: {error}", flush=True)
        return None

    def call(a, sa, w, sw, experts, out):
        grouped((a, sa.t()), (w, sw), out, experts)
        return out

    return call
