"""Checks the grouped products on a Hopper GPU against f64, then times them beside torch's, L2 flushed, interleaved.

    python3 products_check.py LIBRARY [check] [time] [sanitize] ...      LIBRARY: products_capi.cu built as a shared library

Environment: VARIANTS (of fast, fast dense (rows follow each other where K is no multiple of 128, as torch has them; the others start on whole lines), promoted, blockwise, mx, bf16, a on 16, add_f32, blockwise add_f32, torch fp8, torch bf16, deepgemm; with a comma between; default all), PLANS (JSON rows of name, variant, plan
beside them: (cluster - 1) * 1000000 + right_tile * 1000 + slots * 100 + band), OPS, SPLITS (uneven, skewed, even, even128), SHAPES (of the nine, by number, or others: 3,4,98304:2832:2064:8), REPS, TIME_LIMIT seconds.
DeepGEMM's forward and wgrad (which adds to f32) are among them where PEERS_DEEPGEMM names a folder that holds it and the groups are multiples of 128: SPLITS=even128, which leaves out what tokens that costs.
Slow variants in the rotation let the chip cool: name the others alone to see them as they run under load. Other modes: repeat (check, with 1000 repetitions), large (check, and over 2^31
elements), host (what a launch costs there), power, profile.

Prints a line per case, writes products.json ($FILE) into $OUT or the current folder, exits 1 when a check fails."""
import ctypes, json, math, os, random, statistics, subprocess, sys, time
import torch

import deepgemm_peer

dev, bf16, f8, f32 = "cuda", torch.bfloat16, torch.float8_e4m3fn, torch.float32
lib = ctypes.CDLL(os.path.abspath(sys.argv[1]))
modes = sys.argv[2:] or ["check", "time"]
unknown = set(modes) - {"check", "repeat", "large", "time", "sanitize", "host", "power", "profile"}
if unknown: sys.exit(f"products_check.py: no mode {', '.join(sorted(unknown))}; expected check, repeat, large, time, sanitize, host, power or profile")
if {"repeat", "large"} & set(modes): modes.append("check")  # which they are part of
lib.octet_token_product.restype = lib.octet_wgrad_product.restype = ctypes.c_char_p
P, L, I = ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int
lib.octet_token_product.argtypes = [I, I, I, P, P, P, P, P, P, L, L, L, L, I, I, I, P, P, L, L]
lib.octet_wgrad_product.argtypes = [I, I, I, P, P, P, P, P, P, L, L, L, L, L, L, L, L, I, I, P, P, P]
OUT = {bf16: 0, f32: 1}
checking = True
def ptr(t): return None if t is None else t.data_ptr()
def stream(): return torch.cuda.current_stream().cuda_stream

RECIPES = dict(rowwise=0, bf16=1, blockwise=2, mx=3)
BLOCK = dict(blockwise=128, mx=32)
ALIGN = dict(rowwise=128, blockwise=128, mx=32, bf16=1)  # of the groups' first columns, what the library asks for
lib.octet_mx_workspace_bytes.restype, lib.octet_mx_workspace_bytes.argtypes = L, [L] * 5
memory = torch.empty(0, dtype=torch.uint8, device=dev)
def workspace(recipe, *shape):
    """What mxfp8 decodes into; NaN beforehand while checks run."""
    global memory
    if recipe != "mx": return None
    needed = lib.octet_mx_workspace_bytes(*shape)
    if memory.numel() < needed: memory = torch.empty(needed, dtype=torch.uint8, device=dev)
    if checking: memory.fill_(255)
    return memory
def token(a, sa, w, sw, ends, out, fast=True, planned=0, band=8, recipe=None):
    across = recipe == "bf16 across"  # w is [E, K, N]
    E, N, K = (w.shape[0], w.shape[2], w.shape[1]) if across else w.shape
    recipe = "bf16" if across else recipe or ("bf16" if a.dtype == bf16 else "rowwise")
    e = lib.octet_token_product(RECIPES[recipe], int(not fast), OUT[out.dtype], ptr(a), ptr(sa), ptr(w), ptr(sw), ptr(ends),
                                ptr(out), a.shape[0], N, K, E, planned, band, int(across), ptr(workspace(recipe, a.shape[0], N, K, E, 0)), stream(), a.stride(0), w.stride(1))
    if e: raise RuntimeError(e.decode())
    return out
tickets = torch.zeros(1, dtype=torch.int32, device=dev)
def wgrad(dy, sdy, a, sa, ends, dw, m, fast=True, add=False, planned=0, band=8, recipe=None, align=None, a_align=None, dealt=False):
    E, N, K = dw.shape
    recipe = recipe or ("bf16" if dy.dtype == bf16 else "rowwise")
    e = lib.octet_wgrad_product(RECIPES[recipe], int(not fast), 2 if add else OUT[dw.dtype], ptr(dy), ptr(sdy), ptr(a), ptr(sa), ptr(ends),
                                ptr(dw), m, N, K, E, *((0, 0) if recipe == "bf16" else (dy.shape[1], a.shape[1])), align or ALIGN[recipe], a_align or align or ALIGN[recipe], planned, band, ptr(workspace(recipe, m, N, K, E, dy.shape[1])), None if dealt else ptr(tickets), stream())
    if e: raise RuntimeError(e.decode())
    return dw

def ends_of(sizes): return torch.tensor(sizes, dtype=torch.int64).cumsum(0).to(torch.int32).to(dev)
def uneven(M, E, align=16):
    g = torch.Generator().manual_seed(E)
    w = torch.rand(E, generator=g) + 0.5
    s = (w / w.sum() * M / align).floor().long() * align
    s[-1] += M - s.sum()
    return s.tolist()
def skewed(M, E):
    """Half of the tokens in one expert, a quarter of the experts empty."""
    if E == 1: return [M]
    empty = E // 4
    rest = E - 1 - empty
    s = [M // 2 // 16 * 16] + [(M // 2) // rest // 16 * 16] * rest
    s[-1] += M - sum(s)
    out = []
    for i in range(rest + 1):
        out.append(s[i])
        if i < empty: out.append(0)
    return (out + [0] * E)[:E]
def starts_of(sizes, align):
    r, p = [], 0
    for s in sizes: r.append(p); p += (s + align - 1) // align * align
    return r, p
def padded(x, sizes, bound, align):
    """[M, C] -> [C, bound]: transposed, every group from a multiple of align, zero up to there; past the last group NaN."""
    out = torch.zeros(x.shape[1], bound, dtype=torch.uint8, device=dev)
    b = 0
    starts, end = starts_of(sizes, align)
    for s, p in zip(sizes, starts):
        out[:, p:p + s] = x[b:b + s].view(torch.uint8).t(); b += s
    out[:, end:] = 0x7F
    return out.view(x.dtype)
def bound_of(M, E, align): return (M + min(M, E) * (align - 1)) // align * align
def rel(x, ref):
    d = (x.double() - ref).norm().item(); n = ref.norm().item()
    return d / n if n else d
failures = []
def expect(ok, what):
    if not ok: failures.append(what)
    print(("ok   " if ok else "FAIL ") + what, flush=True)

def ceil(a, b): return (a + b - 1) // b
above_exponents = 145  # of mxfp8 operands: up to 134 the left one takes one factor, from 135 on two
def scales_of(recipe, *shape, g):
    """Random scales, and the same in f64."""
    if recipe == "mx":
        b = torch.randint(115, above_exponents, shape, device=dev, generator=g, dtype=torch.uint8)
        return b, torch.exp2(b.double() - 127)
    s = torch.rand(*shape, device=dev, generator=g) + 0.5
    return s, s.double()
def spread(s, block, extent, axis): return s.repeat_interleave(block, axis).narrow(axis, 0, extent)
def tolerance(recipe, fast, steps, dt, add=False):
    # the tensor cores add e4m3 products with about 14 bits: per 128 (promoted, blockwise) or all the way (fast)
    f = 1e-6 * math.sqrt(max(steps, 1)) if recipe in ("bf16", "bf16 across", "mx") else 3e-5 * math.sqrt(max(steps, 128)) if fast and recipe == "rowwise" else 2e-4
    return f + (3e-3 if dt == bf16 else 1e-6 if add else 0)

def apart(t, pitch):
    """The same matrix with its rows that far apart, and NaN between them."""
    if pitch == t.shape[-1]: return t
    memory = torch.full((*t.shape[:-1], pitch), float("nan"), device=dev).to(t.dtype)
    memory[..., :t.shape[-1]] = t
    return memory[..., :t.shape[-1]]

CONFIGS = ((0, 0), (1, 256408), (1, 256308))
def check_token(M, N, K, sizes, recipe="rowwise", reps=3, configs=CONFIGS, gaps=(0, 0)):
    g = torch.Generator(device=dev).manual_seed(0)
    E, total, ends = len(sizes), sum(sizes), ends_of(sizes)
    A = torch.randn(M, K, device=dev, generator=g).to(f8); W = torch.randn(E, N, K, device=dev, generator=g).to(f8)
    A64, W64, sa, sw = A.double(), W.double(), None, None
    if recipe == "bf16": A, W = A.to(bf16), W.to(bf16)
    elif recipe == "bf16 across": A, W = A.to(bf16), W.to(bf16).transpose(1, 2).contiguous()
    elif recipe == "rowwise":
        sa, a64 = scales_of(recipe, M, g=g); sw, w64 = scales_of(recipe, E, N, g=g)
        A64 = A64 * a64[:, None]; W64 = W64 * w64[:, :, None]
    else:
        b = BLOCK[recipe]
        sa, a64 = scales_of(recipe, M, ceil(K, b), g=g); A64 = A64 * spread(a64, b, K, 1)
        if recipe == "blockwise": sa = sa.t().contiguous()
        sw, w64 = scales_of(recipe, E, ceil(N, b) if recipe == "blockwise" else N, ceil(K, b), g=g)
        W64 = W64 * spread(spread(w64, b, N, 1) if recipe == "blockwise" else w64, b, K, 2)
    A, W = apart(A, A.shape[-1] + gaps[0]), apart(W, W.shape[-1] + gaps[1])
    ref = torch.zeros(total, N, dtype=torch.float64, device=dev); r = 0
    for i, s in enumerate(sizes): ref[r:r + s] = A64[r:r + s] @ W64[i].t(); r += s
    for fast in ((True, False) if recipe == "rowwise" else (True,)):
        for dt in (bf16, f32):
            bound = tolerance(recipe, fast, K, dt)
            for c, b in (configs if fast and dt == bf16 and recipe in ("rowwise", "bf16", "bf16 across") else ((0, 0),)):
                same, first = True, None
                for _ in range(reps):
                    out = torch.full((M, N), float("nan"), dtype=dt, device=dev)
                    token(A, sa, W, sw, ends, out, fast, c, b, recipe)
                    if first is None: first = out
                    same &= torch.equal(out.view(torch.uint8), first.view(torch.uint8))
                err = rel(first[:total], ref)
                untouched = bool(first[total:].isnan().all())
                expect(err <= bound and untouched and same, f"token {recipe} {'fast' if fast else 'promoted'} {dt} M{M} N{N} K{K} groups {E} gaps {gaps} plan {c} {b}: error {err:.2e} bound {bound:.1e} untouched {untouched} same {same}")

def check_wgrad(M, N, K, sizes, recipe="rowwise", reps=3, configs=CONFIGS, align=None, a_align=None):
    align = align or ALIGN[recipe]; a_align = a_align or align
    E, total, ends = len(sizes), sum(sizes), ends_of(sizes)
    g = torch.Generator(device=dev).manual_seed(1)
    A = torch.randn(M, K, device=dev, generator=g).to(f8); G = torch.randn(M, N, device=dev, generator=g).to(f8)
    bound, starts = bound_of(M, E, align), starts_of(sizes, align)[0]
    sa = sg = None
    if recipe == "rowwise": (sa, a64), (sg, g64) = scales_of(recipe, E, K, g=g), scales_of(recipe, E, N, g=g)
    elif recipe != "bf16":
        b = BLOCK[recipe]
        (sa, a64), (sg, g64) = scales_of(recipe, K, bound // b, g=g), scales_of(recipe, N, bound // b, g=g)
        if recipe == "blockwise": sa, sg = sa.t().contiguous(), sg.t().contiguous()
    ref = torch.zeros(E, N, K, dtype=torch.float64, device=dev); r = 0
    for i, s in enumerate(sizes):
        a, d = A[r:r + s].double(), G[r:r + s].double(); r += s
        if recipe == "rowwise": a, d = a * a64[i], d * g64[i]
        elif recipe != "bf16" and s: a, d = (x * spread(y[:, starts[i] // b:], b, s, 1).t() for x, y in ((a, a64), (d, g64)))
        ref[i] = d.t() @ a
    if recipe == "bf16": a, dy = A.to(bf16), G.to(bf16); a[total:] = float("nan"); dy[total:] = float("nan")
    else: a, dy = padded(A[:total], sizes, bound_of(M, E, a_align), a_align), padded(G[:total], sizes, bound, align)
    empty = [i for i, s in enumerate(sizes) if s == 0]
    for fast in ((True, False) if recipe == "rowwise" else (True,)):
        for dt, add in ((bf16, False), (f32, False), (f32, True)):
            tol = tolerance(recipe, fast, max(sizes), dt, True)
            for c, bd in (configs if fast and dt == bf16 and recipe in ("rowwise", "bf16") else ((0, 0),)):
                if bd == 256408: continue
                same, first = True, None
                for i in range(reps):
                    out = torch.full((E, N, K), 3.0 if add else float("nan"), dtype=dt, device=dev)
                    wgrad(dy, sg, a, sa, ends, out, M, fast, add, c, bd, recipe, align, a_align, dealt=i % 2 == 1)
                    if first is None: first = out
                    same &= torch.equal(out.view(torch.uint8), first.view(torch.uint8))
                err = rel(first, ref + 3.0 if add else ref)
                zero = all(bool((first[i] == (3.0 if add else 0)).all()) for i in empty)
                expect(err <= tol and same and zero and tickets.item() == 0, f"wgrad {recipe} {'fast' if fast else 'promoted'} {dt}{' add' if add else ''} M{M} N{N} K{K} groups {E} on {align}, {a_align} plan {c} {bd}: error {err:.2e} bound {tol:.1e} same {same} empty zero {zero} tickets left at {tickets.item()}")

if "sanitize" in modes:
    for recipe in ("rowwise", "bf16", "blockwise", "mx"):
        check_token(400, 208, 144, [3, 0, 129, 1, 257], recipe, 1, ((0, 0),))
        check_wgrad(400, 208, 144, [3, 0, 129, 1, 257], recipe, 1, ((0, 0),))
    check_token(400, 208, 144, [3, 0, 129, 1, 257], "bf16 across", 1, ((0, 0),))
    sys.exit(bool(failures))

if "check" in modes:
    t0 = time.time()
    for recipe, above_exponents in (("rowwise", 0), ("bf16", 0), ("blockwise", 0), ("mx", 135), ("mx", 145)):
        check_token(300, 256, 256, [256], recipe)
        check_token(1000, 1408, 2048, [1, 0, 255, 33, 0, 511, 7, 100], recipe)
        check_token(3000, 2048 + 16, 1008, [5, 1000, 300, 0, 1, 641, 700], recipe)
        check_token(2100, 384, 656, [64] * 31 + [1], recipe)
        check_token(3000, 400, 1008, [1500, 0, 1101], recipe)  # many tokens an expert, and rows that straddle lines
        check_token(3000, 400, 1008, [5, 1000, 300, 0, 1, 641, 700], recipe, gaps=(16, 16))
        check_token(3000, 176, 1040, [5, 1000, 300, 0, 1, 641, 700], recipe, gaps=(112, 0))
        check_token(900, 1424, 1072, [5, 300, 0, 1, 141], recipe, gaps=(0, 80))
        check_token(3000, 640, 512, [37 * (i % 3) for i in range(70)], recipe)
        if recipe == "mx":  # a pass over the weights: twice as many tokens as rows of all experts
            check_token(3000, 176, 1008, [5, 1000, 300, 0, 1, 641, 700], recipe)
            check_token(2100, 32, 656, [64] * 31 + [1], recipe)
            check_token(8400, 272, 288, [8300], recipe)
            check_token(16500, 400, 1008, [8300, 8100], recipe)
        check_wgrad(1000, 1408, 768, [1, 0, 255, 33, 0, 511, 7, 100], recipe)
        check_wgrad(1500, 400, 1040, [5, 700, 0, 641, 30], recipe)
        check_wgrad(4000, 400, 272, [1003, 0, 2805, 1], recipe)
        check_wgrad(9000, 400, 272, [5003, 0, 3805], recipe)  # many tokens: added to f32 in L2
        if recipe != "bf16": check_wgrad(1500, 400, 1040, [5, 700, 0, 641, 30], recipe, align=2 * ALIGN[recipe])
    for recipe, align, a_align in (("rowwise", 16, 16), ("rowwise", 48, 16), ("rowwise", 128, 16), ("rowwise", 16, 128), ("blockwise", 128, 128), ("mx", 32, 32)):  # every tail
        check_wgrad(4200, 256, 128, [i % 129 for i in range(64)], recipe, align=align, a_align=a_align)
        check_wgrad(9000, 144, 272, list(range(120, 180)), recipe, align=align, a_align=a_align)
    check_wgrad(4200, 256, 128, [i % 129 for i in range(64)], "bf16")
    check_token(1000, 1408, 2048, [1, 0, 255, 33, 0, 511, 7, 100], "bf16 across")
    check_token(3000, 2048 + 16, 1008, [5, 1000, 300, 0, 1, 641, 700], "bf16 across")
    check_token(3000, 640, 520, [37 * (i % 3) for i in range(70)], "bf16 across")
    check_token(3000, 400, 1008, [5, 1000, 300, 0, 1, 641, 700], "bf16 across", gaps=(16, 112))
    # mxfp8: the gradients decoded on the way, then both operands decoded by a pass
    check_wgrad(1500, 1040, 400, [5, 700, 0, 641, 30], "mx")
    check_wgrad(1500, 6160, 400, [5, 700, 0, 641, 30], "mx")
    check_wgrad(6000, 6160, 144, [2900, 0, 3001], "mx", align=128)
    # mxfp8: NaN elements, NaN blocks, subnormal and zero elements, the smallest and large exponents
    for above, N in ((135, 64), (150, 64), (135, 32), (150, 32)):
        A = torch.randint(0, 256, (96, 160), device=dev, dtype=torch.uint8); A[(A & 127) == 127] = 0; W = A.clone()[:N].unsqueeze(0).contiguous()
        sa, sw = (torch.randint(100, above, (n, 5), device=dev, dtype=torch.uint8) for n in (96, N)); sw = sw.unsqueeze(0)
        A[3, 7] = 127; A[5, 150] = 255; sa[9, 2] = 255; sa[11, 1] = 0; A[11, 32:64] = 3; W[0, 2, 1] = 127
        out = torch.zeros(96, N, device=dev); token(A.view(f8), sa, W.view(f8), sw, ends_of([96]), out, recipe="mx")
        e8 = lambda b: torch.where(b == 255, torch.nan, torch.exp2(b.double() - 127)).repeat_interleave(32, -1)
        ref = (A.view(f8).double() * e8(sa)) @ (W[0].view(f8).double() * e8(sw[0])).t()
        fine = ~ref.isnan()
        expect(bool((out.isnan() == ref.isnan()).all()) and rel(out[fine], ref[fine]) < 1e-5, f"mxfp8 special values, N = {N}, exponents under {above}: error {rel(out[fine], ref[fine]):.1e}, {int(ref.isnan().sum())} NaN")
    check_token(65536, 256, 512, [128] * 512, reps=1000 if "repeat" in modes else 30, configs=((0, 0),))
    check_token(65536, 256, 528, [128] * 512, reps=1000 if "repeat" in modes else 30, configs=((0, 0),))  # rows that straddle lines
    check_token(65536, 256, 512, [128] * 512, "mx", reps=1000 if "repeat" in modes else 30, configs=((0, 0),))
    check_token(65664, 256, 512, [128, 256, 129] * 128, "blockwise", reps=1000 if "repeat" in modes else 30, configs=((0, 0),))
    check_wgrad(65536, 256, 256, [128] * 512, reps=1000 if "repeat" in modes else 30, configs=((0, 0),))
    check_wgrad(65536, 256, 256, [128] * 512, "mx", reps=1000 if "repeat" in modes else 30, configs=((0, 0),))
    try:
        token(torch.zeros(16, 24, device=dev).to(f8), torch.ones(16, device=dev), torch.zeros(1, 16, 24, device=dev).to(f8), torch.ones(1, 16, device=dev), ends_of([16]), torch.zeros(16, 16, device=dev, dtype=bf16), planned=1, band=256308)
        expect(False, "K = 24 is refused")
    except RuntimeError as e: expect("multiple of 16" in str(e), f"K = 24 is refused by the Hopper kernel: {e}")
    # A captured launch replayed with other groups.
    M, N, K = 600, 384, 512
    A, W = torch.randn(M, K, device=dev).to(f8), torch.randn(3, N, K, device=dev).to(f8); sa, sw = torch.ones(M, device=dev), torch.ones(3, N, device=dev)
    ends, out = ends_of([100, 200, 300]), torch.zeros(M, N, device=dev)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph): token(A, sa, W, sw, ends, out)
    ends.copy_(ends_of([511, 0, 7])); out.fill_(float("nan")); graph.replay()
    ref = torch.cat([A[:511].double() @ W[0].double().t(), A[511:518].double() @ W[2].double().t()])
    expect(rel(out[:518], ref) < 1e-3 and bool(out[518:].isnan().all()), "a captured launch replayed with other groups")
    # The same of mxfp8, a pass over the tokens and one over the weights.
    for N in (640, 256):
        M, K = 3300, 1024
        A, W = torch.randn(M, K, device=dev).to(f8), torch.randn(3, N, K, device=dev).to(f8); sa, sw = (torch.full(s, 127, device=dev, dtype=torch.uint8) for s in ((M, K // 32), (3, N, K // 32)))
        ends, out = ends_of([1000, 1100, 1200]), torch.zeros(M, N, device=dev)
        token(A, sa, W, sw, ends, out, recipe="mx"); torch.cuda.synchronize()
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph): token(A, sa, W, sw, ends, out, recipe="mx")
        for sizes in ([3200, 0, 70], [5, 2001, 1200]):
            ends.copy_(ends_of(sizes)); out.fill_(float("nan")); graph.replay()
            ref = torch.cat([a.double() @ w.double().t() for a, w in zip(A[:sum(sizes)].split(sizes), W)])
            expect(rel(out[:sum(sizes)], ref) < 1e-5 and bool(out[sum(sizes):].isnan().all()), f"a captured mxfp8 launch, N = {N}, replayed with groups {sizes}")
    # More than 2^31 elements.
    if "large" in modes:
        M, N, K = 300000, 8192, 128
        A, W = torch.randn(M, K, device=dev).to(f8), torch.randn(2, N, K, device=dev).to(f8); sa, sw = torch.ones(M, device=dev), torch.ones(2, N, device=dev)
        out = torch.empty(M, N, device=dev, dtype=bf16); token(A, sa, W, sw, ends_of([100, M - 101]), out)
        ref = A[-1000:-1].double() @ W[1].double().t()
        expect(rel(out[-1000:-1], ref) < 3e-3, f"{M * N} elements of output")
    print(f"checks: {len(failures)} failures, {time.time() - t0:.1f} s", flush=True)
    if failures: sys.exit(1)

SHAPES = [(16640, 8192, 5120, 1), (16640, 8192, 5120, 4), (16640, 8192, 5120, 16), (16640, 8192, 5120, 64), (16640, 1408, 2048, 64),
          (98304, 1408, 2048, 64), (98304, 2816, 2048, 8), (32768, 2048, 7168, 8), (32768, 4096, 7168, 8)]
checking = False
flush_buffer = torch.empty(256 << 20, dtype=torch.uint8, device=dev)
def bench(variants, reps):
    """{name: call} -> {name: (median us, spread %)}; the variants take turns, so a clock that drifts drifts for all."""
    times = {n: [] for n in variants}
    alive = dict(variants)
    for n, f in list(alive.items()):
        try: f(); torch.cuda.synchronize()
        except Exception as e:
            print("FAILED", n, str(e)[:200], flush=True); del alive[n]
            if not n.startswith("torch") and n != "deepgemm": failures.append(f"{n}: {e}")
    draw = random.Random(0)
    for turn in range(reps):
        ev = []
        order = list(alive.items())
        draw.shuffle(order)  # a kernel's clocks depend on what ran before it; the first after a pause is not counted
        for n, f in order[:1] + order:
            flush_buffer.zero_()
            s, e = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            s.record(); f(); e.record(); ev.append((n, s, e))
        torch.cuda.synchronize()
        for n, s, e in ev[1:]: times[n].append(s.elapsed_time(e) * 1e3)
    r = {}
    for n, t in times.items():
        if t: t.sort(); r[n] = (statistics.median(t), 100 * (t[int(len(t) * .8)] - t[int(len(t) * .2)]) / statistics.median(t))
    return r

# DeepGEMM, TFLOP/s as recorded on an H200 on 2026-11-15 (1x128 scales; even groups on multiples of 128, 16384 tokens where it says 16640; wgrad adds to f32): not this run.
DEEPGEMM = {"fwd": dict(zip(SHAPES, (1398, 1443, 1241, 1148, None, 1230, 1207, 1274, 1263))), "wgrad": dict(zip(SHAPES, (None, 909, 574, 152, None, 710, 877, 876, 859)))}
rows = []
def rand8(*shape):
    out = torch.empty(*shape, dtype=f8, device=dev); flat = out.view(-1); step = 1 << 28
    for i in range(0, flat.numel(), step): flat[i:i + step] = torch.randn(min(step, flat.numel() - i), device=dev, dtype=bf16).to(f8)
    return out
VARIANTS = ["fast", "fast dense", "promoted", "blockwise", "mx", "bf16", "a on 16", "add_f32", "blockwise add_f32", "torch fp8", "torch bf16", "deepgemm"]
deepgemm = deepgemm_peer.load() if "time" in modes and os.environ.get("PEERS_DEEPGEMM") else None
def wanted(calls):
    """{variant: call, taking a plan} -> {name: call}: the variants asked for, and those of PLANS."""
    out = {n: f for n, f in calls.items() if n in os.environ.get("VARIANTS", ",".join(VARIANTS)).split(",")}
    for name, variant, plan in json.loads(os.environ.get("PLANS", "[]")): out[name] = lambda f=calls[variant], plan=plan: f(plan)
    return out
def tokens_of(split, M, E): return M // (128 * E) * 128 * E if split == "even128" else M
def sizes_of(split, M, E): return dict(uneven=uneven, skewed=skewed, even128=lambda M, E: [M // E] * E, even=lambda M, E: [M // E] * (E - 1) + [M - M // E * (E - 1)])[split](M, E)
def time_token(op, M, N, K, E, split, reps):
    M = tokens_of(split, M, E)
    sizes = sizes_of(split, M, E); ends = ends_of(sizes)
    A, W = rand8(M, K), rand8(E, N, K)
    Ab, Wb, dense = A.to(bf16), W.to(bf16), (A, W)
    A, W = (apart(t, ceil(K, 128) * 128) for t in dense)  # as GroupedLinear has them
    sa, sw = torch.rand(M, device=dev) + .5, torch.rand(E, N, device=dev) + .5
    sab, swb = torch.rand(ceil(K, 128), M, device=dev) + .5, torch.rand(E, ceil(N, 128), ceil(K, 128), device=dev) + .5
    ea, ew = torch.randint(120, 134, (M, ceil(K, 32)), device=dev, dtype=torch.uint8), torch.randint(120, 134, (E, N, ceil(K, 32)), device=dev, dtype=torch.uint8)
    out = torch.empty(M, N, dtype=bf16, device=dev)
    across = "bf16 across" if op == "dgrad" else "bf16"  # of the step: dgrad takes the weights of forward
    Wo = Wb.transpose(-2, -1).contiguous() if op == "dgrad" else Wb
    calls = {"fast": lambda plan=0: token(A, sa, W, sw, ends, out, True, plan != 0, plan),
             "promoted": lambda plan=0: token(A, sa, W, sw, ends, out, False, plan != 0, plan),
             "blockwise": lambda plan=0: token(A, sab, W, swb, ends, out, True, plan != 0, plan, "blockwise"),
             "mx": lambda plan=0: token(A, ea, W, ew, ends, out, True, plan != 0, plan, "mx"),
             "fast dense": lambda plan=0: token(dense[0], sa, dense[1], sw, ends, out, True, plan != 0, plan),
             "bf16": lambda plan=0: token(Ab, None, Wo, None, ends, out, True, plan != 0, plan, across),
             "torch fp8": lambda: torch._scaled_grouped_mm(dense[0], dense[1].transpose(-2, -1), sa, sw, ends, out_dtype=bf16, use_fast_accum=True),
             "torch bf16": lambda: torch._grouped_mm(Ab, Wb.transpose(-2, -1), ends)}
    if K % 128 == 0: del calls["fast dense"]
    if deepgemm and op == "fwd" and all(s % 128 == 0 for s in sizes):
        experts = torch.repeat_interleave(torch.arange(E, device=dev, dtype=torch.int32), torch.tensor(sizes, device=dev))
        calls["deepgemm"] = lambda: deepgemm_peer.product(deepgemm, dense[0], sab, dense[1], swb, experts, out)
        err = rel(calls["deepgemm"]().double(), calls["blockwise"]().clone().double())
        if not err < 1e-2: failures.append(f"blockwise against DeepGEMM {M, N, K, E}: {err}"); print("FAIL against DeepGEMM", err)
    report(op, M, N, K, E, split, wanted(calls), reps, lambda: rel(calls["fast"]().double(), calls["torch fp8"]().double()) if M * N < 2 ** 28 else None)
def time_wgrad(M, N, K, E, split, reps):
    M = tokens_of(split, M, E)
    sizes = sizes_of(split, M, E); ends = ends_of(sizes)
    Gt, At = rand8(N, M), rand8(K, M)
    G, A = Gt.t().contiguous().to(bf16), At.t().contiguous().to(bf16)
    bound = bound_of(M, E, 128)
    dy, a, a16 = padded(Gt.t(), sizes, bound, 128), padded(At.t(), sizes, bound, 128), padded(At.t(), sizes, bound_of(M, E, 16), 16)
    sg, sa = torch.rand(E, N, device=dev) + .5, torch.rand(E, K, device=dev) + .5
    sgb, sab = torch.rand(bound // 128, N, device=dev) + .5, torch.rand(bound // 128, K, device=dev) + .5
    eg, ea = torch.randint(120, 134, (N, bound // 32), device=dev, dtype=torch.uint8), torch.randint(120, 134, (K, bound // 32), device=dev, dtype=torch.uint8)
    out = torch.empty(E, N, K, dtype=bf16, device=dev)
    acc = torch.zeros(E, N, K, dtype=f32, device=dev) if E * N * K < 2 ** 32 else None
    calls = {"fast": lambda plan=0: wgrad(dy, sg, a, sa, ends, out, M, True, False, plan != 0, plan),
             "promoted": lambda plan=0: wgrad(dy, sg, a, sa, ends, out, M, False, False, plan != 0, plan),
             "blockwise": lambda plan=0: wgrad(dy, sgb, a, sab, ends, out, M, True, False, plan != 0, plan, "blockwise"),
             "mx": lambda plan=0: wgrad(dy, eg, a, ea, ends, out, M, True, False, plan != 0, plan, "mx", align=128),
             "bf16": lambda plan=0: wgrad(G, None, A, None, ends, out, M, True, False, plan != 0, plan),
             "a on 16": lambda plan=0: wgrad(dy, sg, a16, sa, ends, out, M, True, False, plan != 0, plan, a_align=16),
             "add_f32": lambda plan=0: wgrad(dy, sg, a, sa, ends, acc, M, True, True, plan != 0, plan),
             "blockwise add_f32": lambda plan=0: wgrad(dy, sgb, a, sab, ends, acc, M, True, True, plan != 0, plan, "blockwise"),
             "torch fp8": lambda: torch._scaled_grouped_mm(Gt, At.t(), sg.view(-1), sa.view(-1), ends, out_dtype=bf16, use_fast_accum=True),
             "torch bf16": lambda: torch._grouped_mm(G.t(), A, ends)}
    if acc is None: del calls["add_f32"], calls["blockwise add_f32"]
    if deepgemm and acc is not None and all(s % 128 == 0 for s in sizes):
        dy_groups, a_groups, on_device = deepgemm_peer.by_groups(Gt, sizes), deepgemm_peer.by_groups(At, sizes), torch.tensor(sizes, dtype=torch.int32, device=dev)
        calls["deepgemm"] = lambda: deepgemm_peer.wgrad(deepgemm, dy_groups, sgb, a_groups, sab, sizes, on_device, acc)
        ours = calls["blockwise add_f32"]().clone(); acc.zero_()
        err = max(rel(x, y.double()) for x, y in zip(calls["deepgemm"](), ours)); del ours
        if not err < 1e-5: failures.append(f"blockwise wgrad against DeepGEMM {M, N, K, E}: {err}"); print("FAIL against DeepGEMM", err)
    report("wgrad", M, N, K, E, split, wanted(calls), reps, lambda: rel(calls["fast"]().double(), calls["torch fp8"]().double()) if split == "uneven" and E * N * K < 2 ** 28 else None)
def report(op, M, N, K, E, split, variants, reps, second_opinion):
    err = None
    try: err = second_opinion()
    except Exception as e: print("second opinion:", str(e)[:150])
    if err is not None and not err < 1e-2: failures.append(f"{op} {M, N, K, E}: {err}"); print("FAIL against torch", err)
    r = bench(variants, reps)
    fl = 2 * M * N * K
    for n, (us, sp) in r.items():
        row = dict(op=op, variant=n, M=M, N=N, K=K, E=E, split=split, us=round(us, 1), spread_pct=round(sp, 1), tflops=round(fl / us / 1e6))
        row["vs"] = {p.replace(" ", "_"): round(r[p][0] / us, 3) for p in ("torch fp8", "torch bf16", "bf16", "fast", "deepgemm") if p in r and p != n}
        recorded = DEEPGEMM.get(op, {}).get((M, N, K, E))
        if recorded and n in ("fast", "promoted", "blockwise"): row["vs"]["deepgemm_recorded"] = round(row["tflops"] / recorded, 3)
        rows.append(row)
    ratios = "".join(f", {r[p][0] / r['mx'][0]:.2f} of {p}" for p in ("bf16", "torch bf16") if "mx" in r and p in r)[2:]
    print(f"{op:6} {M, N, K, E} {split}: " + "  ".join(f"{n} {fl / us / 1e6:.0f}" + (f" ({ratios})" if n == "mx" and ratios else "") for n, (us, _) in r.items()) + (f"  | err {err:.1e}" if err is not None else ""), flush=True)
    torch.cuda.empty_cache()

def stamp():
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    return dict(gpu=smi, torch=torch.__version__, cuda=torch.version.cuda, commit=os.environ.get("COMMIT", ""), date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), command=" ".join(os.path.basename(a) if "/" in a and a.endswith(".so") else a for a in sys.argv))
def save():
    json.dump(dict(stamp=stamp(), rows=rows), open(os.path.join(os.environ.get("OUT", "."), os.environ.get("FILE", "products.json")), "w"), indent=0)
if "profile" in modes:  # a few launches for a profiler to look at
    for op, M, N, K, E, c, b in json.loads(os.environ["PROFILE"]):
        sizes = uneven(M, E); ends = ends_of(sizes)
        if op == "wgrad":
            bound = bound_of(M, E, 16)
            dy, a = rand8(N, bound), rand8(K, bound)
            out = torch.empty(E, N, K, dtype=bf16, device=dev)
            wgrad(dy, torch.ones(E, N, device=dev), a, torch.ones(E, K, device=dev), ends, out, M, True, False, c, b)
        else:
            A, W = rand8(M, K), rand8(E, N, K)
            token(A, torch.ones(M, device=dev), W, torch.ones(E, N, device=dev), ends, torch.empty(M, N, dtype=bf16, device=dev), True, c, b)
        torch.cuda.synchronize()
if "host" in modes:
    lib.octet_host_us.argtypes = [P] * 6 + [L] * 4 + [P] * 3
    M, N, K, E = 64, 256, 256, 2
    a, w, out = rand8(M, K), rand8(E, N, K), torch.empty(M, N, dtype=bf16, device=dev); sa, sw, ends = torch.ones(M, device=dev), torch.ones(E, N, device=dev), ends_of([30, 34])
    launch_us, map_us = ctypes.c_double(), ctypes.c_double()
    lib.octet_host_us(ptr(a), ptr(sa), ptr(w), ptr(sw), ptr(ends), ptr(out), M, N, K, E, stream(), ctypes.addressof(launch_us), ctypes.addressof(map_us))
    torch.cuda.synchronize()
    rows.append(dict(op="host", launch_us=round(launch_us.value, 2), tensor_map_us=round(map_us.value, 3)))
    print(f"host: {launch_us.value:.2f} us a launch, {map_us.value:.3f} us a tensor map", flush=True)
    save()
if "power" in modes:  # clocks and power under a steady load of each variant
    for M, N, K, E in ((16640, 8192, 5120, 1), (98304, 2816, 2048, 8)):
        sizes = uneven(M, E); ends = ends_of(sizes)
        A, W = rand8(M, K), rand8(E, N, K); sa, sw = torch.ones(M, device=dev), torch.ones(E, N, device=dev)
        out = torch.empty(M, N, dtype=bf16, device=dev); Wt = W.transpose(-2, -1)
        v = {n: (lambda plan=plan: token(A, sa, W, sw, ends, out, True, plan != 0, plan)) for n, _, plan in json.loads(os.environ.get("PLANS", '[["fast", "fast", 0]]'))}
        v["torch fp8"] = lambda: torch._scaled_grouped_mm(A, Wt, sa, sw, ends, out_dtype=bf16, use_fast_accum=True)
        for n, f in v.items():
            f(); torch.cuda.synchronize(); time.sleep(0.3)
            smi = subprocess.Popen(["nvidia-smi", "--query-gpu=clocks.sm,power.draw.instant,clocks_event_reasons.active", "--format=csv,noheader,nounits", "-lms", "40"], stdout=subprocess.PIPE, text=True)
            time.sleep(0.25)
            s, e = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            t = time.time(); s.record(); i = 0
            while time.time() - t < 0.8:
                for _ in range(20): f()
                i += 20; torch.cuda.synchronize()
            e.record(); torch.cuda.synchronize(); smi.terminate()
            lines = [l.split(", ") for l in smi.stdout.read().strip().splitlines()]
            print(n, (M, N, K, E), f"{2 * M * N * K * i / s.elapsed_time(e) / 1e9:.0f} TFLOP/s sustained; MHz/W:", " ".join(f"{l[0]}/{l[1]}/{l[2][-4:]}" for l in lines[-14::2]), flush=True)
if "time" in modes:
    limit = float(os.environ.get("TIME_LIMIT", "100")); t0 = time.time()
    chosen = [tuple(map(int, i.split(":"))) if ":" in i else SHAPES[int(i)] for i in os.environ["SHAPES"].split(",")] if os.environ.get("SHAPES") else SHAPES
    reps = int(os.environ.get("REPS", "12"))
    for split in os.environ.get("SPLITS", "uneven").split(","):
        for M, N, K, E in chosen:
            for op in os.environ.get("OPS", "fwd,dgrad,wgrad").split(","):
                if time.time() - t0 > limit: print("time limit"); break
                try:
                    if op == "wgrad": time_wgrad(M, N, K, E, split, reps)
                    else: time_token(op, M, *((N, K) if op == "fwd" else (K, N)), E, split, reps)
                except Exception as e: failures.append(f"{op} {M, N, K, E}: {e}"); print("FAILED", op, (M, N, K, E), type(e).__name__, str(e)[:300], flush=True)
                torch.cuda.empty_cache()
            save()
    for peer, name in (("bf16", "Octet's bf16"), ("torch_bf16", "torch's")):
        of = [r["vs"][peer] for r in rows if r.get("variant") == "mx" and peer in r["vs"]]
        if of: print(f"mxfp8: {sum(v >= 0.9 for v in of)} of {len(of)} at 0.9 of {name} or more, the least {min(of)}")
    print(json.dumps(stamp()))
sys.exit(bool(failures))
