"""Checks the grouped products on a Hopper GPU against f64, then times them beside torch's, L2 flushed, interleaved.

    python3 products_check.py LIBRARY [check] [time] [sanitize]      LIBRARY: products_capi.cu built as a shared library

Prints a line per case, writes products.json into $OUT or the current folder, exits 1 when a check fails."""
import ctypes, json, math, os, statistics, subprocess, sys, time
import torch

dev, bf16, f8, f32 = "cuda", torch.bfloat16, torch.float8_e4m3fn, torch.float32
lib = ctypes.CDLL(os.path.abspath(sys.argv[1]))
modes = sys.argv[2:] or ["check", "time"]
lib.octet_token_product.restype = lib.octet_wgrad_product.restype = ctypes.c_char_p
P, L, I = ctypes.c_void_p, ctypes.c_longlong, ctypes.c_int
lib.octet_token_product.argtypes = [I, I, I, P, P, P, P, P, P, L, L, L, L, I, I, P]
lib.octet_wgrad_product.argtypes = [I, I, I, P, P, P, P, P, P, L, L, L, L, L, I, I, P]
OUT = {bf16: 0, f32: 1}
def ptr(t): return None if t is None else t.data_ptr()
def stream(): return torch.cuda.current_stream().cuda_stream

def token(a, sa, w, sw, ends, out, fast=True, cluster=0, band=8):
    E, N, K = w.shape
    e = lib.octet_token_product(int(a.dtype == bf16), int(not fast), OUT[out.dtype], ptr(a), ptr(sa), ptr(w), ptr(sw), ptr(ends),
                                ptr(out), a.shape[0], N, K, E, cluster, band, stream())
    if e: raise RuntimeError(e.decode())
    return out
def wgrad(dy, sdy, a, sa, ends, dw, m, fast=True, add=False, cluster=0, band=8):
    E, N, K = dw.shape
    b = dy.dtype == bf16
    e = lib.octet_wgrad_product(int(b), int(not fast), 2 if add else OUT[dw.dtype], ptr(dy), ptr(sdy), ptr(a), ptr(sa), ptr(ends),
                                ptr(dw), m, N, K, E, 0 if b else dy.shape[1], cluster, band, stream())
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
def starts_of(sizes):
    r, p = [], 0
    for s in sizes: r.append(p); p += (s + 127) // 128 * 128
    return r, p
def padded(x, sizes, bound):
    """[M, C] -> [C, bound]: transposed, every group from a multiple of 128, zero tails."""
    out = torch.zeros(x.shape[1], bound, dtype=x.dtype, device=dev)
    b = 0
    for s, p in zip(sizes, starts_of(sizes)[0]):
        out.view(torch.uint8)[:, p:p + s] = x[b:b + s].view(torch.uint8).t(); b += s
    return out
def bound_of(M, E): return (M + min(M, E) * 127) // 128 * 128
def rel(x, ref):
    d = (x.double() - ref).norm().item(); n = ref.norm().item()
    return d / n if n else d
failures = []
def expect(ok, what):
    if not ok: failures.append(what)
    print(("ok   " if ok else "FAIL ") + what, flush=True)

def make(M, N, K, sizes, seed=0):
    g = torch.Generator(device=dev).manual_seed(seed)
    E = len(sizes)
    A = torch.randn(M, K, device=dev, generator=g).to(f8); W = torch.randn(E, N, K, device=dev, generator=g).to(f8)
    sa = torch.rand(M, device=dev, generator=g) + 0.5; sw = torch.rand(E, N, device=dev, generator=g) + 0.5
    return A, sa, W, sw
def reference_token(A, sa, W, sw, sizes):
    Y = torch.zeros(sum(sizes), W.shape[1], dtype=torch.float64, device=dev); b = 0
    for g, s in enumerate(sizes):
        if s: Y[b:b + s] = (A[b:b + s].double() @ W[g].double().t()) * (sa[b:b + s, None].double() * sw[g][None].double() if sa is not None else 1)
        b += s
    return Y

def check_token(M, N, K, sizes, bf=False, reps=3, configs=((1, 8), (2, 8), (2, 1))):
    A, sa, W, sw = make(M, N, K, sizes)
    if bf: A, W, sa, sw = A.to(bf16), W.to(bf16), None, None
    total, ends = sum(sizes), ends_of(sizes)
    ref = reference_token(A, sa, W, sw, sizes)
    for fast in ((True,) if bf else (True, False)):
        for dt in (bf16, f32):
            bound = (1e-6 if bf or not fast else 3e-4) * math.sqrt(K) + (3e-3 if dt == bf16 else 0)
            for c, b in configs:
                worst, same, first = 0, True, None
                for _ in range(reps):
                    out = torch.full((M, N), float("nan"), dtype=dt, device=dev)
                    token(A, sa, W, sw, ends, out, fast, c, b)
                    if first is None: first = out
                    same &= torch.equal(out.view(torch.uint8), first.view(torch.uint8))
                r = rel(first[:total], ref)
                untouched = bool(first[total:].isnan().all())
                expect(r <= bound and untouched and same, f"token {'bf16' if bf else 'fp8'} {'fast' if fast else 'promoted'} {dt} M{M} N{N} K{K} groups {len(sizes)} cluster {c} band {b}: error {r:.2e} bound {bound:.1e} untouched {untouched} same {same}")

def check_wgrad(M, N, K, sizes, bf=False, reps=3, configs=((1, 8), (2, 8))):
    E, total, ends = len(sizes), sum(sizes), ends_of(sizes)
    g = torch.Generator(device=dev).manual_seed(1)
    A = torch.randn(M, K, device=dev, generator=g).to(f8); G = torch.randn(M, N, device=dev, generator=g).to(f8)
    sa = torch.rand(E, K, device=dev, generator=g) + 0.5; sg = torch.rand(E, N, device=dev, generator=g) + 0.5
    ref = torch.zeros(E, N, K, dtype=torch.float64, device=dev); b = 0
    for i, s in enumerate(sizes):
        ref[i] = G[b:b + s].double().t() @ A[b:b + s].double()
        if not bf: ref[i] *= sg[i][:, None].double() * sa[i][None].double()
        b += s
    if bf: a, dy, sa, sg = A.to(bf16), G.to(bf16), None, None; a[total:] = float("nan"); dy[total:] = float("nan")
    else:
        bound = bound_of(M, E)
        a, dy = padded(A[:total], sizes, bound), padded(G[:total], sizes, bound)
    empty = [i for i, s in enumerate(sizes) if s == 0]
    for fast in ((True,) if bf else (True, False)):
        for dt, add in ((bf16, False), (f32, False), (f32, True)):
            tol = (1e-6 if bf or not fast else 3e-4) * math.sqrt(max(max(sizes), 1)) + (3e-3 if dt == bf16 else 1e-6)
            for c, bd in configs:
                same, first = True, None
                for _ in range(reps):
                    out = torch.full((E, N, K), 3.0 if add else float("nan"), dtype=dt, device=dev)
                    wgrad(dy, sg, a, sa, ends, out, M, fast, add, c, bd)
                    if first is None: first = out
                    same &= torch.equal(out.view(torch.uint8), first.view(torch.uint8))
                r = rel(first, ref + 3.0 if add else ref)
                zero = all(bool((first[i] == (3.0 if add else 0)).all()) for i in empty)
                expect(r <= tol and same and zero, f"wgrad {'bf16' if bf else 'fp8'} {'fast' if fast else 'promoted'} {dt}{' add' if add else ''} M{M} N{N} K{K} groups {E} cluster {c}: error {r:.2e} bound {tol:.1e} same {same} empty zero {zero}")

if "sanitize" in modes:
    for bf in (False, True):
        check_token(400, 208, 144, [3, 0, 129, 1, 257], bf, 1, ((2, 8),))
        check_wgrad(400, 208, 144, [3, 0, 129, 1, 257], bf, 1, ((2, 8),))
    sys.exit(bool(failures))

if "check" in modes:
    t0 = time.time()
    for bf in (False, True):
        check_token(300, 256, 256, [256], bf)
        check_token(1000, 1408, 2048, [1, 0, 255, 33, 0, 511, 7, 100], bf)
        check_token(3000, 2048 + 16, 1008, [5, 1000, 300, 0, 1, 641, 700], bf)
        check_token(2100, 384, 656, [64] * 31 + [1], bf)
        check_token(3000, 640, 512, [37 * (i % 3) for i in range(70)], bf)
        check_wgrad(1000, 1408, 768, [1, 0, 255, 33, 0, 511, 7, 100], bf)
        check_wgrad(1500, 400, 1040, [5, 700, 0, 641, 30], bf)
    check_token(65536, 256, 512, [128] * 512, reps=30, configs=((2, 8),))
    try:
        token(torch.zeros(16, 24, device=dev).to(f8), torch.ones(16, device=dev), torch.zeros(1, 16, 24, device=dev).to(f8), torch.ones(1, 16, device=dev), ends_of([16]), torch.zeros(16, 16, device=dev, dtype=bf16))
        expect(False, "K = 24 is refused")
    except RuntimeError as e: expect("multiple of 16" in str(e), f"K = 24 is refused: {e}")
    print(f"checks: {len(failures)} failures, {time.time() - t0:.1f} s", flush=True)
    if failures: sys.exit(1)

SHAPES = [(16640, 8192, 5120, 1), (16640, 8192, 5120, 4), (16640, 8192, 5120, 16), (16640, 8192, 5120, 64), (16640, 1408, 2048, 64),
          (98304, 1408, 2048, 64), (98304, 2816, 2048, 8), (32768, 2048, 7168, 8), (32768, 4096, 7168, 8)]
flush_buffer = torch.empty(256 << 20, dtype=torch.uint8, device=dev)
def bench(variants, reps):
    """{name: call} -> {name: (median us, spread %)}; the variants take turns, so a clock that drifts drifts for all."""
    times = {n: [] for n in variants}
    alive = dict(variants)
    for n, f in list(alive.items()):
        try: f(); torch.cuda.synchronize()
        except Exception as e: print("FAILED", n, str(e)[:200], flush=True); del alive[n]
    for _ in range(reps):
        ev = []
        for n, f in alive.items():
            flush_buffer.zero_()
            s, e = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            s.record(); f(); e.record(); ev.append((n, s, e))
        torch.cuda.synchronize()
        for n, s, e in ev: times[n].append(s.elapsed_time(e) * 1e3)
    r = {}
    for n, t in times.items():
        if t: t.sort(); r[n] = (statistics.median(t), 100 * (t[int(len(t) * .8)] - t[int(len(t) * .2)]) / statistics.median(t))
    return r

rows = []
def rand8(*shape):
    out = torch.empty(*shape, dtype=f8, device=dev); flat = out.view(-1); step = 1 << 28
    for i in range(0, flat.numel(), step): flat[i:i + step] = torch.randn(min(step, flat.numel() - i), device=dev, dtype=bf16).to(f8)
    return out
def time_token(op, M, N, K, E, split, plans, peers=True, reps=12):
    sizes = uneven(M, E) if split == "uneven" else skewed(M, E)
    ends = ends_of(sizes)
    A, W = rand8(M, K), rand8(E, N, K)
    sa, sw = torch.rand(M, device=dev) + .5, torch.rand(E, N, device=dev) + .5
    out = torch.empty(M, N, dtype=bf16, device=dev); Wt = W.transpose(-2, -1)
    v = {}
    for name, fast, c, b in plans:
        v[f"octet fp8 {name}"] = lambda fast=fast, c=c, b=b: token(A, sa, W, sw, ends, out, fast, c, b)
    if peers:
        v["torch fp8"] = lambda: torch._scaled_grouped_mm(A, Wt, sa, sw, ends, out_dtype=bf16, use_fast_accum=True)
        Ab, Wb = A.to(bf16), W.to(bf16); Wbt = Wb.transpose(-2, -1)
        v["octet bf16"] = lambda: token(Ab, None, Wb, None, ends, out)
        v["torch bf16"] = lambda: torch._grouped_mm(Ab, Wbt, ends)
    report(op, M, N, K, E, split, v, reps, lambda: rel(token(A, sa, W, sw, ends, out).double(), v["torch fp8"]().double()) if peers and M * N < 2 ** 28 else None)
def time_wgrad(M, N, K, E, split, plans, peers=True, reps=12):
    sizes = uneven(M, E) if split == "uneven" else skewed(M, E)
    ends = ends_of(sizes)
    Gt, At = rand8(N, M), rand8(K, M)
    bound = bound_of(M, E)
    dy, a = padded(Gt.t(), sizes, bound), padded(At.t(), sizes, bound)
    sg, sa = torch.rand(E, N, device=dev) + .5, torch.rand(E, K, device=dev) + .5
    out = torch.empty(E, N, K, dtype=bf16, device=dev)
    v = {}
    for name, fast, c, b in plans:
        v[f"octet fp8 {name}"] = lambda fast=fast, c=c, b=b: wgrad(dy, sg, a, sa, ends, out, M, fast, False, c, b)
    if peers:
        if E * N * K < 2 ** 30:
            acc = torch.zeros(E, N, K, dtype=f32, device=dev)
            v["octet fp8 add_f32"] = lambda: wgrad(dy, sg, a, sa, ends, acc, M, True, True)
        v["torch fp8"] = lambda: torch._scaled_grouped_mm(Gt, At.t(), sg.view(-1), sa.view(-1), ends, out_dtype=bf16, use_fast_accum=True)
        G, A = Gt.t().contiguous().to(bf16), At.t().contiguous().to(bf16)
        v["octet bf16"] = lambda: wgrad(G, None, A, None, ends, out, M)
        v["torch bf16"] = lambda: torch._grouped_mm(G.t(), A, ends)
    report("wgrad", M, N, K, E, split, v, reps, lambda: rel(wgrad(dy, sg, a, sa, ends, out, M).double(), v["torch fp8"]().double()) if peers and split == "uneven" and E * N * K < 2 ** 28 else None)
def report(op, M, N, K, E, split, variants, reps, second_opinion):
    err = None
    try: err = second_opinion()
    except Exception as e: print("second opinion:", str(e)[:150])
    if err is not None and not err < 1e-2: failures.append(f"{op} {M, N, K, E}: {err}"); print("FAIL against torch", err)
    r = bench(variants, reps)
    fl = 2 * M * N * K
    for n, (us, sp) in r.items():
        row = dict(op=op, recipe=n, M=M, N=N, K=K, E=E, split=split, us=round(us, 1), spread_pct=round(sp, 1), tflops=round(fl / us / 1e6))
        row["vs"] = {p.replace(" ", "_"): round(r[p][0] / us, 3) for p in ("torch fp8", "torch bf16") if p in r and p != n}
        rows.append(row)
    print(f"{op:6} {M, N, K, E} {split}: " + "  ".join(f"{n.replace('octet ', 'o:')} {fl / us / 1e6:.0f}" for n, (us, _) in r.items()) + (f"  | err {err:.1e}" if err is not None else ""), flush=True)
    torch.cuda.empty_cache()

def stamp():
    smi = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version,clocks.sm,power.draw,temperature.gpu", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    return dict(gpu=smi, torch=torch.__version__, cuda=torch.version.cuda, commit=os.environ.get("COMMIT", ""), date=time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()), command=" ".join(sys.argv))
def save():
    json.dump(dict(stamp=stamp(), rows=rows), open(os.path.join(os.environ.get("OUT", "."), "products.json"), "w"), indent=0)
if "time" in modes:
    limit = float(os.environ.get("TIME_LIMIT", "100")); t0 = time.time()
    plans = [tuple(p) for p in json.loads(os.environ.get("PLANS", '[["", true, 0, 0], ["promoted", false, 0, 0]]'))]
    for split in os.environ.get("SPLITS", "uneven").split(","):
        for M, N, K, E in SHAPES:
            for op in os.environ.get("OPS", "fwd,dgrad,wgrad").split(","):
                if time.time() - t0 > limit: print("time limit"); break
                try:
                    if op == "wgrad": time_wgrad(M, N, K, E, split, plans)
                    else: time_token(op, M, *((N, K) if op == "fwd" else (K, N)), E, split, plans)
                except Exception as e: print("FAILED", op, (M, N, K, E), type(e).__name__, str(e)[:300], flush=True)
                torch.cuda.empty_cache()
            save()
    print(json.dumps(stamp()))
sys.exit(bool(failures))
