"""Padded token groups against torchao, there and back."""

import pytest
import torch

import references as ref
from compare import assert_same
from tensors import random_ends


@pytest.mark.parametrize("tokens,features,count,alignment", [(40, 16, 4, 16), (100, 3, 9, 32), (64, 8, 1, 1), (7, 5, 3, 128)])
def test_pad_and_unpad(octet, source, tokens, features, count, alignment):
    for seed in range(10):
        x = torch.randn(tokens, features, generator=torch.Generator().manual_seed(seed)).to(source)
        ends = random_ends(tokens, count, seed, empty=True)
        padded, padded_ends = octet.pad_groups(x, ends, alignment)
        theirs, starts, their_ends = ref.torch_pad_token_groups(x, ends, alignment)
        assert_same(padded_ends, their_ends, "padded ends")
        used = int(padded_ends[-1])
        assert_same(padded[:used], theirs[:used], "padded rows")
        back = ref.torch_unpad_token_groups(theirs, ends, starts, tokens, alignment)
        assert_same(octet.unpad_groups(padded, ends, alignment, tokens), back, "unpadded rows")
