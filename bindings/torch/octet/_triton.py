"""The fused kernels of _rows.py. A row of the expert order a program; arithmetic in f32, one rounding at the end."""
import torch
import triton
import triton.language as tl


@triton.jit
def _gather_sum(rows, places, out, d, K: tl.constexpr, BLOCK: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < d
    total = tl.zeros([BLOCK], tl.float32)
    for k in tl.static_range(K):
        place = tl.load(places + token * K + k)
        total += tl.load(rows + place * d + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + token * d + column, total.to(out.dtype.element_ty), mask=inside)


def gather_sum(rows, places):
    rows, places = rows.contiguous(), places.contiguous()
    tokens, k = places.shape
    out = rows.new_empty(tokens, rows.shape[1])
    if out.numel():
        block = min(2048, triton.next_power_of_2(rows.shape[1]))
        with torch.cuda.device(rows.device):
            _gather_sum[(tokens, triton.cdiv(rows.shape[1], block))](rows, places, out, rows.shape[1], k, block, num_warps=4)
    return out


@triton.jit
def _swiglu(gate, up, weight, out, h, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < h
    g = tl.load(gate + row * h + column, mask=inside, other=0.0).to(tl.float32)
    u = tl.load(up + row * h + column, mask=inside, other=0.0).to(tl.float32)
    value = g * tl.sigmoid(g) * u
    if HAS_WEIGHT:
        value *= tl.load(weight + row).to(tl.float32)
    tl.store(out + row * h + column, value.to(out.dtype.element_ty), mask=inside)


def swiglu(gate, up, weight):
    gate, up = gate.contiguous(), up.contiguous()
    rows, h = gate.shape
    out = torch.empty_like(gate)
    if out.numel():
        block = min(2048, triton.next_power_of_2(h))
        with torch.cuda.device(gate.device):
            _swiglu[(rows, triton.cdiv(h, block))](gate, up, gate if weight is None else weight.contiguous(), out, h,
                                                   weight is not None, block, num_warps=4)
    return out


@triton.jit
def _swiglu_backward(dh, gate, up, weight, dgate, dup, dweight, h, HAS_WEIGHT: tl.constexpr, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    w = tl.load(weight + row).to(tl.float32) if HAS_WEIGHT else 1.0
    total = tl.zeros([BLOCK], tl.float32)
    for begin in range(0, h, BLOCK):
        column = begin + tl.arange(0, BLOCK)
        inside = column < h
        g = tl.load(gate + row * h + column, mask=inside, other=0.0).to(tl.float32)
        u = tl.load(up + row * h + column, mask=inside, other=0.0).to(tl.float32)
        d = tl.load(dh + row * h + column, mask=inside, other=0.0).to(tl.float32)
        sigmoid = tl.sigmoid(g)
        silu = g * sigmoid
        if HAS_WEIGHT:
            total += d * silu * u
        d *= w
        tl.store(dgate + row * h + column, (d * u * sigmoid * (1 + g * (1 - sigmoid))).to(dgate.dtype.element_ty), mask=inside)
        tl.store(dup + row * h + column, (d * silu).to(dup.dtype.element_ty), mask=inside)
    if HAS_WEIGHT:
        tl.store(dweight + row, tl.sum(total).to(dweight.dtype.element_ty))


def swiglu_backward(dh, gate, up, weight):
    dh, gate, up = dh.contiguous(), gate.contiguous(), up.contiguous()
    rows, h = gate.shape
    dgate, dup = torch.empty_like(gate), torch.empty_like(up)
    dweight = None if weight is None else torch.empty_like(weight, memory_format=torch.contiguous_format)
    if gate.numel():
        block = min(2048, triton.next_power_of_2(h))
        with torch.cuda.device(gate.device):
            _swiglu_backward[(rows,)](dh, gate, up, gate if weight is None else weight.contiguous(), dgate, dup,
                                      gate if weight is None else dweight, h, weight is not None, block, num_warps=4)
    return dgate, dup, dweight
