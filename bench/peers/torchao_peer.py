"""torchao's fp8 rowwise product as a peer on an NVIDIA GPU, tuned in seconds a shape.

torchao's kernels try dozens of Triton configurations on every new shape: about a minute of compiling on one core, and some
ten seconds of timing. Here a kernel's configurations are compiled by all cores at once, and each is timed for a few
milliseconds, not 125. All of torchao's own configurations are tried, so only the choice between near equals can differ.
TRITON_CACHE_AUTOTUNING=1, Triton's own, keeps what was chosen for the next process."""
import concurrent.futures
import os
import sys

WARMUP_MS, MEASURED_MS = 3, 10


def _tune_quickly():
    import triton
    import triton.testing
    from triton.runtime.autotuner import Autotuner

    patient_bench, prune = triton.testing.do_bench, Autotuner.prune_configs

    def bench(call, quantiles=None, **_):
        return patient_bench(call, warmup=WARMUP_MS, rep=MEASURED_MS, quantiles=quantiles)

    def compiled_configs(self, kwargs):  # asked for once a shape, before any of them is timed
        configs = prune(self, kwargs)
        others = {name: value for name, value in kwargs.items() if name != "warmup"}
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool, triton.AsyncCompileMode(pool, ignore_errors=True):
            for config in configs:
                self.fn.warmup(*self.nargs.values(), **others, **config.all_kwargs())
        return configs

    triton.testing.do_bench = bench
    if hasattr(triton, "AsyncCompileMode"):  # Triton 3.5 and newer
        Autotuner.prune_configs = compiled_configs


def product():
    """torchao's product of (a, w, offs), for groups of multiples of 16 rows; None, and why is said, where there is no torchao.
    PEERS_TORCHAO names a folder that holds it, where it is not installed."""
    if os.environ.get("PEERS_TORCHAO"):
        sys.path.insert(0, os.environ["PEERS_TORCHAO"])
    try:
        _tune_quickly()  # before torchao makes its kernels' tuners
        from torchao.prototype.moe_training.fp8_grouped_mm import _to_fp8_rowwise_then_scaled_grouped_mm as grouped_mm
    except Exception as error:
        print(f"torchao is not timed: {type(error).__name__}: {error}", flush=True)
        return None
    return lambda a, w, offs: grouped_mm(a, w, offs, pad_token_groups_for_grouped_mm=False)
