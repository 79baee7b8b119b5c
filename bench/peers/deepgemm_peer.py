"""DeepGEMM's grouped products of fp8_blockwise operands as peers on a Hopper GPU.

Their groups are multiples of 128 rows. It compiles a kernel for every shape when it is first called, some seconds each:
DG_JIT_CACHE_DIR, DeepGEMM's own, names the folder that keeps them."""
import os
import sys


def load():
    """DeepGEMM; None, and why is said, where there is none. PEERS_DEEPGEMM names a folder that holds it (deep_gemm with its
    extension built), where it is not installed."""
    if os.environ.get("PEERS_DEEPGEMM"):
        sys.path.insert(0, os.environ["PEERS_DEEPGEMM"])
    try:
        import deep_gemm
        return deep_gemm
    except Exception as error:
        print(f"DeepGEMM is not timed: {type(error).__name__}: {error}", flush=True)
        return None


def product(deep_gemm, a, sa, w, sw, experts, out):
    """out[M, N] of a[M, K] and w[E, N, K], e4m3, with the scales sa[K/128, M] and sw[E, N/128, K/128] and the expert of every
    row [M] int32."""
    deep_gemm.m_grouped_fp8_gemm_nt_contiguous((a, sa.t()), (w, sw), out, experts)
    return out


def by_groups(x, sizes):
    """x[R, M] with tokens in columns, as wgrad() takes it: the columns of one group after those of the other, each [R, size]."""
    import torch

    return torch.cat([group.reshape(-1).view(torch.uint8) for group in x.split(sizes, 1)]).view(x.dtype)


def wgrad(deep_gemm, dy, sdy, a, sa, sizes, sizes_on_device, dw):
    """Adds to dw[E, N, K] f32 the product of dy[N, M] and a[K, M], e4m3 by_groups(), with the scales sdy[M/128, N] and
    sa[M/128, K]; the groups' sizes as a list and as [E] int32."""
    deep_gemm.k_grouped_fp8_gemm_nt_contiguous((dy, sdy.t()), (a, sa.t()), dw, sizes, sizes_on_device, dw)
    return dw
