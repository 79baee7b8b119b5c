"""The permutation and SwiGLU on an NVIDIA GPU where random small cases do not reach: more than 2^31 elements, and one
captured graph replayed with other orders and groups.

    OCTET_LIBRARY=liboctet.so python3 tokens_check.py

`octet verify --device cuda` has compared small calls with the scalar reference byte for byte. Here a large call's input is
a small one's, tiled, so that its output must be the small one's output, tiled; a graph is captured once, its inputs are
overwritten, and its outputs must be those of plain calls. Exits 1 where a byte differs."""
import ctypes
import sys

import torch

from octet_cuda import CUDA, Handle, call, tensor

bf16, dev = torch.bfloat16, torch.device("cuda:0")
failures = []


def address(t):
    return ctypes.c_void_p(None if t is None else t.data_ptr())


class Order:
    """T tokens to top_k experts each: slots sorted by expert, some of them dropped."""

    def __init__(self, experts_of_slot, experts, dropped):
        self.slots = experts_of_slot.numel()
        self.slot_of_row, self.row_of_slot = (torch.empty(self.slots, dtype=torch.int32, device=dev) for _ in range(2))
        self.ends = torch.empty(experts, dtype=torch.int32, device=dev)
        self.set(experts_of_slot, dropped)

    def set(self, experts_of_slot, dropped):
        slots = torch.argsort(experts_of_slot, stable=True)
        rows = torch.empty_like(slots)
        rows[slots] = torch.arange(self.slots, device=dev)
        slots[rows[dropped]] = -1
        rows[dropped] = -1
        self.slot_of_row.copy_(slots)
        self.row_of_slot.copy_(rows)
        self.ends.copy_(torch.bincount(experts_of_slot, minlength=self.ends.numel()).cumsum(0))


class Layer:
    """Buffers for every call on one size, and the calls."""

    def __init__(self, tokens, top_k, features, hidden, experts, order):
        rows = tokens * top_k
        self.order, self.experts = order, experts
        self.x, self.dy = (torch.empty(tokens, features, dtype=bf16, device=dev) for _ in range(2))
        self.gate_up, self.dgate_up = (torch.empty(rows, 2 * hidden, dtype=bf16, device=dev) for _ in range(2))
        self.ds, self.s = (torch.empty(rows, hidden, dtype=bf16, device=dev) for _ in range(2))
        self.permuted, self.drows = (torch.empty(rows, features, dtype=bf16, device=dev) for _ in range(2))
        self.combined = torch.empty(tokens, features, dtype=bf16, device=dev)
        self.weights, self.dweights = (torch.empty(rows, dtype=torch.float32, device=dev) for _ in range(2))
        self.codes = torch.empty(rows, hidden, dtype=torch.float8_e4m3fn, device=dev)
        self.scales = torch.empty(rows, dtype=torch.float32, device=dev)
        self.on = Handle("execution", "create")
        self.sizes = (ctypes.c_int64(tokens), ctypes.c_int64(top_k), ctypes.c_int64(rows))
        self.options = Handle("quantize_options", "create")
        self.handles = {name: tensor(t) for name, t in vars(self).items() if isinstance(t, torch.Tensor) and t.dim() == 2}
        scales = tensor(self.scales)
        self.quantized = Handle("quantized", "create", self.handles["codes"].pointer, scales.pointer, None)
        self.handles["scales"] = scales
        self.token_order = Handle("token_order", "create", *self.sizes, address(order.row_of_slot), address(order.slot_of_row),
                                  CUDA, 0)

    def run(self):
        call("octet_execution_set_stream", self.on.pointer, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
        t = {name: handle.pointer for name, handle in self.handles.items()}
        order, on, weights = self.token_order.pointer, self.on.pointer, address(self.weights)
        call("octet_permute_tokens", order, t["x"], t["permuted"], on)
        call("octet_combine_tokens", order, t["permuted"], weights, None, 0, t["combined"], on)
        call("octet_combine_tokens_backward", order, t["dy"], t["permuted"], weights, t["drows"], address(self.dweights), on)
        call("octet_swiglu", t["gate_up"], weights, t["s"], on)
        call("octet_swiglu_backward", t["gate_up"], weights, t["ds"], t["dgate_up"], None, on)
        call("octet_swiglu_quantize", t["gate_up"], weights, None, ctypes.c_int64(1), self.options.pointer, self.quantized.pointer,
             None, on)

    INPUTS = ("x", "dy", "gate_up", "ds", "weights")
    OUTPUTS = ("permuted", "combined", "drows", "dweights", "s", "dgate_up", "codes", "scales")

    def fill(self, seed):
        generator = torch.Generator(device=dev).manual_seed(seed)
        for name in self.INPUTS:
            getattr(self, name).normal_(generator=generator)

    def poison(self):
        for name in self.OUTPUTS:
            getattr(self, name).view(torch.uint8).fill_(0xA5)


def expect_same(what, given, expected):
    same = torch.equal(given.contiguous().view(torch.uint8), expected.contiguous().view(torch.uint8))
    print(f"{'same' if same else 'WRONG'}  {what}", flush=True)
    if not same:
        failures.append(what)


def random_order(tokens, top_k, experts, seed):
    generator = torch.Generator(device=dev).manual_seed(seed)
    slots = torch.randint(experts, (tokens * top_k,), generator=generator, device=dev)
    dropped = torch.randint(tokens * top_k, (tokens // 7,), generator=generator, device=dev)
    return slots, dropped


def large():
    """Copies of a small layer, each with experts of its own: rows of one copy lie together, in the small one's order."""
    tokens, top_k, features, hidden, experts, copies = 4096, 4, 2048, 1024, 8, 72
    slots, dropped = random_order(tokens, top_k, experts, 1)
    small = Layer(tokens, top_k, features, hidden, experts, Order(slots, experts, dropped))
    small.fill(2)
    small.poison()
    small.run()
    of_copy = torch.arange(copies, device=dev)[:, None]
    order = Order((slots + of_copy * experts).flatten(), experts * copies, (dropped + of_copy * slots.numel()).flatten())
    layer = Layer(tokens * copies, top_k, features, hidden, experts * copies, order)
    for name in Layer.INPUTS:
        source = getattr(small, name)
        getattr(layer, name).view(copies, *source.shape).copy_(source.expand(copies, *source.shape))
    layer.poison()
    layer.run()
    assert layer.permuted.numel() > 2**31 and layer.gate_up.numel() > 2**31
    for name in Layer.OUTPUTS:
        source = getattr(small, name)
        for i, copy in enumerate(getattr(layer, name).view(copies, *source.shape)):
            if not torch.equal(copy.view(torch.uint8), source.view(torch.uint8)):
                expect_same(f"{name} of {getattr(layer, name).numel()} elements, copy {i}", copy, source)
                break
        else:
            expect_same(f"{name} of {getattr(layer, name).numel()} elements", copy, source)


def graph():
    tokens, top_k, features, hidden, experts = 3000, 6, 1408, 704, 64
    slots, dropped = random_order(tokens, top_k, experts, 3)
    order = Order(slots, experts, dropped)
    layer = Layer(tokens, top_k, features, hidden, experts, order)
    layer.fill(4)
    layer.run()
    torch.cuda.synchronize()
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        layer.run()
    for seed in (5, 6, 7):
        slots, dropped = random_order(tokens, top_k, experts, seed)
        order.set(slots, dropped)
        layer.fill(10 * seed)
        layer.poison()
        captured.replay()
        replayed = {name: getattr(layer, name).clone() for name in Layer.OUTPUTS}
        layer.poison()
        layer.run()
        for name, given in replayed.items():
            expect_same(f"{name} replayed with order {seed}", given, getattr(layer, name))


if __name__ == "__main__":
    graph()
    large()
    if failures:
        sys.exit(f"{len(failures)} outputs differ")
