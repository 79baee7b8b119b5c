"""fp8_blockwise against torchao's blockwise references (exact scales)."""

import pytest
import torch
import torch.nn.functional as F

import references as ref
from compare import assert_same
from tensors import group_ranges, kinds, random_ends, with_infinity
from test_rowwise import rows_reference

E4M3 = [torch.float8_e4m3fn, torch.float8_e4m3fnuz]


@pytest.fixture(params=E4M3, ids=["e4m3", "e4m3fnuz"])
def e4m3(request):
    return request.param


def pad_to_blocks(x, rows, columns):
    """Zeros up to whole blocks: they change no maximum. torchao takes whole blocks only, Octet any size."""
    return F.pad(x, (0, -x.shape[-1] % columns, 0, -x.shape[-2] % rows)).contiguous()


def every_kind(shape, source, seed):
    return [*kinds(shape, source, seed), *with_infinity(shape, source, seed)]


@pytest.mark.parametrize("shape", [(1, 128), (5, 256), (3, 130), (4, 1), (2, 383)], ids=str)
def test_activations_1x128(octet, source, e4m3, shape):
    for name, x in every_kind(shape, source, 1):
        padded = pad_to_blocks(x, 1, 128)
        data, inverse = ref.torch_blockwise_scale_act_quant_lhs(padded, 128, e4m3)
        ours = octet.rows(x, e4m3, scaling="blockwise", rounding="exact")
        assert_same(ours[2], inverse.contiguous(), f"{name}: inverse")
        assert_same(ours[0], data[:, : shape[1]].contiguous(), f"{name}: data")


@pytest.mark.parametrize("shape", [(1, 128, 128), (2, 256, 128), (2, 130, 7), (1, 1, 300)], ids=str)
def test_weights_128x128(octet, source, e4m3, shape):
    experts, n, k = shape
    for name, w in every_kind(shape, source, 2):
        along_k, along_n = octet.weights(w, e4m3, scaling="blockwise", rounding="exact")
        for e in range(experts):
            data, inverse = ref.torch_blockwise_scale_weight_quant(pad_to_blocks(w[e], 128, 128), 128, e4m3)
            assert_same(along_k[2][e], inverse, f"{name}: inverse along K")
            assert_same(along_k[0][e], data[:n, :k].contiguous(), f"{name}: data along K")
            assert_same(along_n[2][e], inverse.t().contiguous(), f"{name}: inverse along N")
            assert_same(along_n[0][e], data[:n, :k].t().contiguous(), f"{name}: data along N")


@pytest.mark.parametrize("tokens,features,count,multiple,alignment",
                         [(256, 5, 2, 128, 128), (300, 3, 4, 1, 128), (200, 4, 3, 1, 256), (130, 2, 1, 1, 128)])
def test_columns_128x1_per_group(octet, source, e4m3, tokens, features, count, multiple, alignment):
    for seed, (name, x) in enumerate(every_kind((tokens, features), source, 3)):
        ends = random_ends(tokens, count, seed, multiple)
        ours = octet.columns(x, ends, alignment, e4m3, scaling="blockwise", rounding="exact")
        for begin, end, padded, padded_end in group_ranges(ends, alignment):
            for at in range(begin, end, 128):
                rows = min(128, end - at)
                # The reference wants whole blocks along both axes, and rounds the floor of amax to the input's format
                # (test_deviations.py), so columns below that floor are left to the test after this one.
                block = pad_to_blocks(x[at : at + rows], 128, 128)
                keep = ~(x[at : at + rows].float().abs().amax(0) < 1.1e-12)
                data, inverse = ref.torch_blockwise_scale_act_quant_rhs(block, 128, e4m3)
                to = padded + at - begin
                assert_same(ours[2][keep, to // 128], inverse[0, :features][keep], f"{name}: inverse")
                assert_same(ours[0].view(torch.uint8)[keep, to : to + rows].view(e4m3),
                            data.view(torch.uint8)[:rows, :features][:, keep].t().contiguous().view(e4m3), f"{name}: data")


def test_activations_with_power_of_two_scales(octet, source, fp8):
    """torchao has no such blockwise reference; its rowwise one on each block as a row says the same."""
    for name, x in every_kind((6, 256), source, 5):
        data, scale = rows_reference(x.view(-1, 128), fp8, "power_of_two")
        ours = octet.rows(x, fp8, scaling="blockwise", rounding="power_of_two")
        assert_same(ours[1], scale.view(6, 2), f"{name}: scale")
        assert_same(ours[0], data.view(6, 256), f"{name}: data")


def test_columns_128x1_are_rows_1x128_of_the_transpose(octet, source, e4m3):
    """The same columns by torchao's row reference, which has Octet's floor for amax."""
    for seed, (name, x) in enumerate(every_kind((200, 6), source, 4)):
        ends = random_ends(200, 3, seed, empty=True)
        columns = octet.columns(x, ends, 128, e4m3, scaling="blockwise", rounding="exact")
        across = octet.transposed(x.t().contiguous(), ends, 128, e4m3, scaling="blockwise", rounding="exact")
        for begin, end, padded, padded_end in group_ranges(ends, 128):
            if begin == end:
                continue
            block = pad_to_blocks(x[begin:end].t(), 1, 128)
            data, inverse = ref.torch_blockwise_scale_act_quant_lhs(block, 128, e4m3)
            at = slice(padded // 128, padded_end // 128)
            for ours in (columns, across):
                assert_same(ours[2][:, at].contiguous(), inverse.contiguous(), f"{name}: inverse")
                assert_same(ours[0][:, padded : padded + end - begin].contiguous(),
                            data[:, : end - begin].contiguous(), f"{name}: data")
