"""fp8_rowwise against torchao: rows, columns per group, rows per group, expert weights."""

import pytest
import torch

import references as ref
from compare import assert_same
from tensors import ROW_SHAPES, group_ranges, kinds, random_ends, with_infinity

POWER_OF_TWO = {"power_of_two": True, "exact": False}


def settle(theirs, exact_scale, x, fp8):
    """torchao's (data, scale), except where its rounding *down* to a power of two went up.

    torchao computes exp2(floor(log2(scale))) in f32, and just below a power of two log2 rounds to the whole number:
    the result exceeds the scale. That is possible for f32 input only, and is pinned in test_deviations.py. Its own two
    numbers tell those scales apart; they are halved, and the data is made again by torchao's own cast.
    """
    data, scale = theirs
    went_up = scale > exact_scale
    if not went_up.any():
        return data, scale
    assert x.dtype == torch.float32
    scale = torch.where(went_up, scale / 2, scale)
    return ref.to_fp8_saturated(x.to(torch.float32) * scale, fp8), scale


def rows_reference(x, fp8, rounding):
    """data [..., K] and scale [...] of the last axis, by torchao."""
    def scale(power_of_two):
        return ref.tensor_to_scale(x, fp8, scaling_granularity=ref.ScalingGranularity.AXISWISE, axiswise_dim=-1,
                                   round_scales_to_power_of_2=power_of_two)

    theirs = scale(POWER_OF_TWO[rounding])
    data = ref.to_fp8_saturated(x.to(torch.float32) * theirs, fp8)
    data, theirs = settle((data, theirs), scale(False), x, fp8)
    return data, theirs.squeeze(-1)


def assert_rows(ours, theirs, what):
    assert_same(ours[1], theirs[1], f"{what}: scale")
    assert_same(ours[2], 1.0 / theirs[1], f"{what}: inverse")
    assert_same(ours[0], theirs[0], f"{what}: data")


@pytest.mark.parametrize("shape", ROW_SHAPES, ids=str)
def test_rows(octet, source, fp8, rounding, shape):
    for seed in range(2):
        for name, x in [*kinds(shape, source, seed), *with_infinity(shape, source, seed)]:
            assert_rows(octet.rows(x, fp8, rounding=rounding), rows_reference(x, fp8, rounding), f"{name}, seed {seed}")


def test_rows_of_a_wider_tensor(octet, source, fp8, rounding):
    for name, wide in kinds((9, 200), source, 3):
        x = wide[:, 8:108]
        assert_rows(octet.rows(x, fp8, rounding=rounding), rows_reference(x.contiguous(), fp8, rounding), name)


def columns_reference(x, ends, fp8, rounding):
    """data [M, K], scale [G, K] of nonempty groups, by torchao's per-group column reference."""
    ends = ends.unique()
    ends = ends[ends > 0]
    groups = ends.numel()
    theirs = ref.torch_to_float8_per_group_colwise(x, ends, fp8, POWER_OF_TWO[rounding])
    exact = ref.torch_to_float8_per_group_colwise(x, ends, fp8, False)[1]
    data, scale = theirs[0], theirs[1].view(groups, -1)
    begin = 0
    for g, end in enumerate(ends.tolist()):
        settled = settle((data[begin:end], scale[g]), exact.view(groups, -1)[g], x[begin:end], fp8)
        data[begin:end], scale[g] = settled
        begin = end
    return data, scale


def assert_columns(ours, x, ends, alignment, fp8, rounding, what):
    """ours: data [K, P], scale and inverse [G, K]."""
    data, scale = columns_reference(x, ends, fp8, rounding)
    empty_scale = ref.amax_to_scale(torch.zeros(()), fp8, POWER_OF_TWO[rounding])
    row = 0
    for g, (begin, end, padded, padded_end) in enumerate(group_ranges(ends, alignment)):
        if begin == end:  # torchao cannot take the maximum of nothing; Octet's rule: the scale of amax = 0
            expected = empty_scale.expand(x.shape[1]).contiguous()
        else:
            expected = scale[row]
            row += 1
        assert_same(ours[1][g], expected, f"{what}: scale of group {g}")
        assert_same(ours[2][g], 1.0 / expected, f"{what}: inverse of group {g}")
        assert_same(ours[0][:, padded : padded + end - begin], data[begin:end].t(), f"{what}: data of group {g}")
        tail = ours[0][:, padded + end - begin : padded_end].contiguous().view(torch.uint8)
        assert not tail.any(), f"{what}: the tail of group {g} is not zero"


GROUPED = [(40, 16, 4, 16), (96, 33, 3, 32), (64, 8, 1, 1), (130, 5, 7, 8)]


@pytest.mark.parametrize("tokens,features,count,alignment", GROUPED)
@pytest.mark.parametrize("empty", [False, True], ids=["full", "empty groups"])
def test_columns_per_group(octet, source, fp8, rounding, tokens, features, count, alignment, empty):
    for seed, (name, x) in enumerate([*kinds((tokens, features), source, 11), *with_infinity((tokens, features), source, 12)]):
        ends = random_ends(tokens, count, seed, empty=empty)
        ours = octet.columns(x, ends, alignment, fp8, rounding=rounding)
        assert_columns(ours, x, ends, alignment, fp8, rounding, name)


def test_columns_leave_rows_of_nobody_out(octet, fp8):
    x = torch.randn(50, 12, generator=torch.Generator().manual_seed(5))
    x[40:] = 1e6
    ends = torch.tensor([10, 10, 40], dtype=torch.int32)
    ours = octet.columns(x, ends, 16, fp8)
    assert_columns(ours, x[:40], ends, 16, fp8, "power_of_two", "50 rows, 40 in groups")


def test_dual_and_pair_are_columns_and_rows(octet, source, fp8, rounding):
    for seed in range(4):
        g = torch.Generator().manual_seed(seed)
        x0, x1 = (torch.randn(70, k, generator=g).to(source) for k in (24, 40))
        ends = random_ends(70, 5, seed, empty=True)
        out0, out1 = octet.columns_dual(x0, x1, ends, 16, fp8, rounding=rounding)
        assert_columns(out0, x0, ends, 16, fp8, rounding, "first of two")
        assert_columns(out1, x1, ends, 16, fp8, rounding, "second of two")
        rows, columns = octet.pair(x0, ends, 16, fp8, rounding=rounding)
        assert_rows(rows, rows_reference(x0, fp8, rounding), "rows of a pair")
        assert_columns(columns, x0, ends, 16, fp8, rounding, "columns of a pair")


@pytest.mark.parametrize("tokens,features,count,alignment", GROUPED)
def test_rows_per_group(octet, source, fp8, rounding, tokens, features, count, alignment):
    for seed, (name, x) in enumerate([*kinds((features, tokens), source, 21), *with_infinity((features, tokens), source, 22)]):
        ends = random_ends(tokens, count, seed)
        data, scale = ref.torch_to_float8_per_group_rowwise(x, ends, fp8, POWER_OF_TWO[rounding])
        exact = ref.torch_to_float8_per_group_rowwise(x, ends, fp8, False)[1].view(count, features)
        scale = scale.view(count, features)
        ours = octet.transposed(x, ends, alignment, fp8, rounding=rounding)
        for g, (begin, end, padded, _) in enumerate(group_ranges(ends, alignment)):
            theirs, expected = settle((data[:, begin:end], scale[g, :, None]), exact[g, :, None], x[:, begin:end], fp8)
            assert_same(ours[1][g], expected.squeeze(-1), f"{name}: scale of group {g}")
            assert_same(ours[0][:, padded : padded + end - begin], theirs, f"{name}: data of group {g}")


@pytest.mark.parametrize("shape", [(1, 1, 1), (2, 24, 40), (3, 17, 65), (1, 130, 33)], ids=str)
def test_expert_weights(octet, source, fp8, rounding, shape):
    for name, w in [*kinds(shape, source, 31), *with_infinity(shape, source, 32)]:
        along_k, along_n = octet.weights(w, fp8, rounding=rounding)
        assert_rows(along_k, rows_reference(w, fp8, rounding), f"{name}, along K")
        transposed = w.transpose(-2, -1).contiguous()
        assert_rows(along_n, rows_reference(transposed, fp8, rounding), f"{name}, along N")


def test_expert_weights_by_the_transposing_reference(octet, source, fp8, rounding):
    """torchao's 3D reference: input (E, K, N) seen column-major, output (E, N, K) with a scale for every k."""
    for seed in range(20):
        w = torch.randn(2, 24, 40, generator=torch.Generator().manual_seed(seed)).to(source)  # [E, N, K]
        data, scale = ref.torch_to_3d_rowwise_float8_transpose_rhs(w.transpose(-2, -1), fp8, POWER_OF_TWO[rounding])
        along_n = octet.weights(w, fp8, rounding=rounding)[1]  # [E, K, N]
        assert_same(along_n[0], data.transpose(-2, -1).contiguous(), "data")
        assert_same(along_n[1], scale.squeeze(1), "scale")
