"""The tensors that are compared: random ones, and those built to hit an edge of the arithmetic."""

import torch

# Every shape is small: what matters is how many different rows, blocks and groups are seen.
ROW_SHAPES = [(1, 1), (3, 7), (5, 32), (4, 129), (16, 128), (7, 257), (2, 1000), (33, 64)]


def _random_bits(shape, dtype, g):
    """Any bit pattern that is a finite number."""
    if dtype == torch.bfloat16:
        x = torch.randint(-(2**15), 2**15, shape, generator=g, dtype=torch.int32).to(torch.int16).view(dtype)
    else:
        x = torch.randint(-(2**31), 2**31, shape, generator=g, dtype=torch.int64).to(torch.int32).view(dtype)
    return torch.where(torch.isfinite(x), x, torch.ones_like(x))


def _sprinkle(x, value, g, chance=0.02):
    return torch.where(torch.rand(x.shape, generator=g) < chance, torch.full_like(x, value), x)


def _per_row_magnitude(x, low, high, g):
    exponent = torch.randint(low, high, (*x.shape[:-1], 1), generator=g)
    return torch.ldexp(x.double(), exponent).to(x.dtype)


def _ties(shape, dtype, g):
    """Numbers on or next to the midpoints between 8-bit values, with an amax that makes the scale a power of two."""
    steps = torch.randint(-32, 33, shape, generator=g).double() / 2
    exponent = torch.randint(-12, 5, shape, generator=g)
    x = torch.ldexp(steps, exponent).to(dtype)
    x[..., 0] = 448.0
    return x


def kinds(shape, dtype, seed):
    """Yields (name, tensor) for one shape; all of them finite or with the non-finite values their name says."""
    g = torch.Generator().manual_seed(seed)
    normal = lambda: torch.randn(shape, generator=g).to(dtype)  # noqa: E731
    yield "normal", normal()
    yield "rows of all magnitudes", _per_row_magnitude(normal(), -30, 30, g)
    yield "rows of extreme magnitudes", _per_row_magnitude(normal(), -140, 120, g).nan_to_num(nan=0.0, posinf=1.0, neginf=-1.0)
    yield "random bits", _random_bits(shape, dtype, g)
    yield "sparse", _sprinkle(torch.zeros(shape, dtype=dtype), 3.0, g, 0.05)
    yield "zeros of both signs", torch.where(torch.rand(shape, generator=g) < 0.5, 0.0, -0.0).to(dtype)
    yield "below the smallest amax", (torch.randn(shape, generator=g) * 1e-13).to(dtype)
    yield "subnormal", (torch.randn(shape, generator=g).double() * 1e-39).to(dtype)
    yield "one outlier a row", torch.where(torch.arange(shape[-1]) == shape[-1] // 2, 1000.0 * normal(), normal())
    yield "powers of two", torch.ldexp(torch.ones(shape), torch.randint(-20, 20, shape, generator=g)).to(dtype)
    yield "ties", _ties(shape, dtype, g)
    yield "constant rows", torch.randn((*shape[:-1], 1), generator=g).to(dtype).expand(shape).contiguous()
    yield "largest", torch.full(shape, torch.finfo(dtype).max, dtype=dtype)
    yield "some nan", _sprinkle(normal(), float("nan"), g)
    yield "all nan", torch.full(shape, float("nan"), dtype=dtype)


def with_infinity(shape, dtype, seed):
    g = torch.Generator().manual_seed(seed)
    x = torch.randn(shape, generator=g).to(dtype)
    yield "some infinity", _sprinkle(x, float("inf"), g)
    yield "some minus infinity", _sprinkle(x, float("-inf"), g)
    yield "infinity and nan", _sprinkle(_sprinkle(x, float("inf"), g), float("nan"), g)


def random_ends(tokens, count, seed, multiple=1, empty=False):
    """Cumulative ends of `count` groups over `tokens` rows; without `empty` every group has a row."""
    g = torch.Generator().manual_seed(seed)
    units = tokens // multiple
    if empty:
        cuts = torch.randint(0, units + 1, (count - 1,), generator=g)
    else:
        cuts = torch.randperm(units - 1, generator=g)[: count - 1] + 1
    cuts = torch.sort(torch.cat([cuts, torch.tensor([units])])).values
    return (cuts * multiple).to(torch.int32)


def group_ranges(ends, alignment):
    """(begin, end, padded begin, padded end) of each group."""
    begin = padded = 0
    for end in ends.tolist():
        size = -(-(end - begin) // alignment) * alignment
        yield begin, end, padded, padded + size
        begin, padded = end, padded + size
