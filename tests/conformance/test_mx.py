"""mxfp8 against torchao's to_mx, in its four modes, and the blocked layout of the scales."""

import pytest
import torch
import torch.nn.functional as F

import octet_c
import references as ref
from compare import assert_same
from tensors import group_ranges, kinds, random_ends, with_infinity

MX_FORMATS = [torch.float8_e4m3fn, torch.float8_e5m2]
MODES = ["rceil", "floor", "ceil", "even"]
# Blocks whose scale byte comes out 0, and infinities, are where the two differ: test_deviations.py.
APART = ("rows of extreme magnitudes", "random bits", "subnormal")


@pytest.fixture(params=MX_FORMATS, ids=["e4m3", "e5m2"])
def mx_format(request):
    return request.param


@pytest.fixture(params=MODES)
def mode(request):
    return request.param


def pad_last(x):
    return F.pad(x, (0, -x.shape[-1] % 32)).contiguous()


def mx_reference(x, mx_format, mode):
    """data, e8m0 scale of the last axis. Short tails are filled up with zeros, which change no maximum."""
    scale, data = ref.to_mx(pad_last(x), mx_format, 32, ref.MX_MODES[mode])
    return data[..., : x.shape[-1]].contiguous(), scale


def comparable(scale, x, mx_format, mode):
    """Blocks where Octet and torchao mean the same: the scale byte is not 0 unless the block is zero, and for rceil in
    f32 torchao's log2 has not lost the round up (its own descale tells). Returns a mask over the scale."""
    code = scale.view(torch.uint8)
    amax = pad_last(x.float()).unflatten(-1, (-1, 32)).abs().amax(-1)
    keep = (code != 0) | (amax == 0)
    if mode == "rceil":
        descale = amax / torch.finfo(mx_format).max
        short = torch.ldexp(torch.ones_like(descale, dtype=torch.float64), code.int() - 127) < descale.double()
        if x.dtype == torch.bfloat16:
            assert not short.any()
        keep &= ~short
    return keep


def _elements(blocks, x):
    """A mask over the blocks as a mask over the elements."""
    return blocks.repeat_interleave(32, dim=-1)[..., : x.shape[-1]]


def assert_mx(ours, x, mx_format, mode, what):
    data, scale = mx_reference(x, mx_format, mode)
    keep = comparable(scale, x, mx_format, mode)
    all_comparable = bool(keep.all())
    assert_same(ours[1].view(torch.uint8)[keep].view(torch.float8_e8m0fnu),
                scale.view(torch.uint8)[keep].view(torch.float8_e8m0fnu), f"{what}: scale")
    if mode != "rceil":
        # Beside a NaN scale torchao leaves zeros in these modes, Octet NaNs: both blocks decode to NaN.
        nan = keep & (scale.view(torch.uint8) == 255)
        assert octet_c.decode(ours[0])[_elements(nan, x)].isnan().all(), f"{what}: a block with a NaN scale has numbers"
        keep = keep & ~nan
    elements = _elements(keep, x)
    assert_same(ours[0].view(torch.uint8)[elements].view(mx_format), data.view(torch.uint8)[elements].view(mx_format),
                f"{what}: data")
    return all_comparable


@pytest.mark.parametrize("shape", [(1, 1), (3, 32), (5, 33), (16, 96), (7, 200)], ids=str)
def test_rows(octet, source, mx_format, mode, shape):
    for seed in range(3):
        for name, x in kinds(shape, source, seed):
            ours = octet.rows(x, mx_format, scaling="mx", mode=mode)
            assert assert_mx(ours, x, mx_format, mode, f"{name}, seed {seed}") or name in APART, name


def test_every_bf16_amax(octet, mx_format, mode):
    """A block for every finite bf16 value of its largest element."""
    bits = torch.arange(0x7F80, dtype=torch.int32).to(torch.int16).view(torch.bfloat16)
    g = torch.Generator().manual_seed(7)
    x = (torch.rand(bits.numel(), 32, generator=g) * 2 - 1).double() * bits.double()[:, None]
    x[:, 5] = bits.double()
    x = x.to(torch.bfloat16)
    assert_mx(octet.rows(x, mx_format, scaling="mx", mode=mode), x, mx_format, mode, "every bf16 amax")


def test_f32_amax_around_every_boundary(octet, mx_format, mode):
    """Blocks whose amax is within a few units of a power of two, of the format's maximum times one, and of the even
    mode's rounding points."""
    around = []
    for mantissa in (0, 0x400000, 0x600000, 0x700000, 0x780000, 0x7FFFFF):
        for exponent in range(20, 250, 7):
            around.append(torch.arange(-8, 9, dtype=torch.int32) + (exponent << 23) + mantissa)
    amax = torch.cat(around).view(torch.float32)
    x = torch.zeros(amax.numel(), 32)
    x[:, 0], x[:, 1], x[:, 2] = amax, -amax / 3, amax * 0.999
    assert_mx(octet.rows(x, mx_format, scaling="mx", mode=mode), x, mx_format, mode, "amax around boundaries")


@pytest.mark.parametrize("tokens,features,count,multiple", [(128, 9, 3, 32), (100, 4, 5, 1), (64, 33, 1, 32)])
def test_columns_per_group(octet, source, mx_format, mode, tokens, features, count, multiple):
    for seed, (name, x) in enumerate(kinds((tokens, features), source, 41)):
        ends = random_ends(tokens, count, seed, multiple, empty=seed % 2 == 1)
        columns = octet.columns(x, ends, 32, mx_format, scaling="mx", mode=mode)
        across = octet.transposed(x.t().contiguous(), ends, 32, mx_format, scaling="mx", mode=mode)
        for begin, end, padded, padded_end in group_ranges(ends, 32):
            if begin == end:
                continue
            for data, scale, _ in (columns, across):
                part = data[:, padded : padded + end - begin], scale[:, padded // 32 : padded_end // 32]
                assert_mx([p.contiguous() for p in part], x[begin:end].t(), mx_format, mode, name)


def _without_nan_scales(ours, theirs, scale):
    """Both data, less the blocks whose scale is NaN: see assert_mx."""
    keep = (scale.contiguous().view(torch.uint8) != 255).repeat_interleave(32, dim=-1)
    return tuple(d.contiguous().view(torch.uint8)[keep].view(torch.float8_e4m3fn) for d in (ours, theirs))


def test_columns_by_the_per_group_references(octet, source):
    """torchao's own per-group functions: floor mode, e4m3, group sizes that are multiples of 32."""
    e4m3 = torch.float8_e4m3fn
    for seed, (name, x) in enumerate(kinds((160, 12), source, 43)):
        if name in APART:
            continue
        ends = random_ends(160, 3, seed, 32)
        columns = octet.columns(x, ends, 32, e4m3, scaling="mx", mode="floor")
        data, scale = ref._to_mxfp8_per_group_colwise(x, ends)
        assert_same(*_without_nan_scales(columns[0][:, :160], data.t(), scale.t()), f"{name}: data")
        assert_same(columns[1][:, :5].contiguous(), scale.t().contiguous(), f"{name}: scale")
        x = x.t().contiguous()
        across = octet.transposed(x, ends, 32, e4m3, scaling="mx", mode="floor")
        data, scale = ref._to_mxfp8_per_group_rowwise(x, ends)
        assert_same(*_without_nan_scales(across[0][:, :160], data, scale), f"{name}: data, tokens contiguous")
        assert_same(across[1][:, :5].contiguous(), scale, f"{name}: scale, tokens contiguous")


@pytest.mark.parametrize("shape", [(1, 32, 64), (2, 33, 40), (3, 5, 7)], ids=str)
def test_expert_weights(octet, source, mx_format, mode, shape):
    for name, w in kinds(shape, source, 45):
        along_k, along_n = octet.weights(w, mx_format, scaling="mx", mode=mode)
        assert_mx(along_k, w, mx_format, mode, f"{name}, along K")
        assert_mx(along_n, w.transpose(-2, -1).contiguous(), mx_format, mode, f"{name}, along N")


def test_data_follows_from_the_scale(octet, source, fp8, mode):
    """All three formats, e4m3fnuz too, for which torchao has no MX: torch's cast of x times 2^(127 - b)."""
    for name, x in [*kinds((8, 64), source, 47), *with_infinity((8, 64), source, 48)]:
        data, scale, _ = octet.rows(x, fp8, scaling="mx", mode=mode)
        code = scale.view(torch.uint8).int()
        multiplier = torch.ldexp(torch.ones(code.shape), 127 - code)
        multiplier[code == 255] = float("nan")
        scaled = x.float().unflatten(-1, (-1, 32)) * multiplier.unsqueeze(-1)
        assert_same(data, ref.to_fp8_saturated(scaled.flatten(-2), fp8), name)


def test_dequantize(octet, mx_format, mode):
    for seed in range(10):
        x = torch.randn(6, 96, generator=torch.Generator().manual_seed(seed))
        q = octet.rows(x, mx_format, scaling="mx", mode=mode)
        for to in (torch.float32, torch.bfloat16):
            theirs = ref.to_dtype(q[0], q[1], mx_format, 32, to)
            assert_same(octet.dequantize_rows(q, scaling="mx", to=to), theirs, f"to {to}")


def random_scales(shape, seed):
    bits = torch.randint(0, 256, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int32)
    return bits.to(torch.uint8).view(torch.float8_e8m0fnu)


def as_bytes(x):
    return x.contiguous().view(torch.uint8)


@pytest.mark.parametrize("shape", [(1, 1), (128, 4), (129, 5), (256, 8), (37, 3), (300, 17)], ids=str)
def test_blocked_scales(octet, shape):
    for seed in range(5):
        scale = random_scales(shape, seed)
        blocked = octet.swizzle(scale)
        assert_same(as_bytes(blocked), ref.to_blocked(as_bytes(scale)), "to_blocked")
        back = ref.from_blocked(as_bytes(blocked), *shape)
        assert_same(as_bytes(octet.unswizzle(blocked, shape)), back.contiguous(), "from_blocked")
        assert_same(as_bytes(octet.unswizzle(blocked, shape)), as_bytes(scale), "there and back")


@pytest.mark.parametrize("shape", [(1, 128, 4), (3, 130, 6), (2, 5, 9)], ids=str)
def test_blocked_scales_of_experts(octet, shape):
    for seed in range(5):
        scale = random_scales(shape, seed)
        blocked = octet.swizzle(scale)
        assert_same(as_bytes(blocked), ref.torch_to_blocked_per_group_3d(as_bytes(scale)), "per expert")
        assert_same(as_bytes(octet.unswizzle(blocked, shape)), as_bytes(scale), "there and back")


@pytest.mark.parametrize("rows,columns,count", [(256, 4, 2), (300, 8, 4), (100, 12, 7), (129, 4, 1)])
def test_blocked_scales_per_token_group(octet, rows, columns, count):
    for seed in range(10):
        scale = random_scales((rows, columns), seed)
        ends = random_ends(rows, count, seed, empty=True)
        blocked = octet.swizzle_groups(scale, ends)
        theirs, starts = ref.torch_to_blocked_2d_M_groups(as_bytes(scale), ends)
        # torchao allocates 128 spare rows a group, Octet the most that can be needed; both are zero past the last group.
        shared = min(blocked.numel(), theirs.numel())
        assert int(starts[-1]) * columns <= shared
        assert_same(as_bytes(blocked)[:shared], theirs.flatten()[:shared].contiguous(), "groups along the rows")
        assert_same(as_bytes(octet.unswizzle_groups(blocked, ends, (rows, columns))), as_bytes(scale), "there and back")


def test_blocked_scales_per_token_group_of_any_width(octet):
    """torchao's group function wants a multiple of 4 columns; group by group to_blocked takes any."""
    for columns in (1, 3, 5, 7):
        scale, ends = random_scales((200, columns), columns), random_ends(200, 5, columns, empty=True)
        blocked, at = as_bytes(octet.swizzle_groups(scale, ends)), 0
        for begin, end, _, _ in group_ranges(ends, 128):
            theirs = ref.to_blocked(as_bytes(scale[begin:end]))
            assert_same(blocked[at : at + theirs.numel()], theirs, f"rows {begin} to {end}")
            at += theirs.numel()
        assert not blocked[at:].any()
