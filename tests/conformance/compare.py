"""Bit comparison, in which a NaN equals any NaN and nothing else."""

import torch

compared = {"tensors": 0, "elements": 0}


def _canonical(x):
    """The bits of x, all NaNs made one."""
    if x.dtype == torch.float8_e8m0fnu:
        return x.contiguous().view(torch.uint8)
    bits = x.contiguous().view({1: torch.uint8, 2: torch.int16, 4: torch.int32}[x.dtype.itemsize]).to(torch.int64)
    return torch.where(torch.isnan(x.to(torch.float32)), -(2**40), bits)


def assert_same(ours, theirs, what):
    assert ours.dtype == theirs.dtype and ours.shape == theirs.shape, (
        f"{what}: {ours.dtype} {tuple(ours.shape)} against {theirs.dtype} {tuple(theirs.shape)}")
    compared["tensors"] += 1
    compared["elements"] += ours.numel()
    if ours.numel() == 0:
        return
    different = _canonical(ours) != _canonical(theirs)
    if different.any():
        at = tuple(different.nonzero()[0].tolist())
        raise AssertionError(f"{what}: {int(different.sum())} of {ours.numel()} differ, first at {at}: Octet has "
                             f"{ours[at].to(torch.float32).item()!r}, the reference {theirs[at].to(torch.float32).item()!r}")
