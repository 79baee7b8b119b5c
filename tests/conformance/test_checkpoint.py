"""A checkpoint of `octet train` opens in Hugging Face's safetensors library, under the documented names."""
import json
import os
import pathlib
import subprocess

import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import load_file
from safetensors.torch import load_file as load_torch

PROGRAM = pathlib.Path(os.environ["OCTET_LIBRARY"]).resolve().parent.parent / "tools/octet/octet"

MODEL = """[model]
vocabulary = 256
layers = 3
hidden = 32
heads = 4
kv_heads = 2
head_dim = 8
sequence_length = 16
tied_head = false

[dense]
layers = 1
intermediate = 48

[experts]
count = 4
per_token = 2
shared = 2
intermediate = 24

[router]
balance = "bias"

[training]
steps = 3
batch = 2
"""


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    if not PROGRAM.exists():
        pytest.skip(f"{PROGRAM} is not built")
    folder = tmp_path_factory.mktemp("run")
    (folder / "model.toml").write_text(MODEL)
    (folder / "text.txt").write_text("A text to learn, again and again. " * 50)
    subprocess.run([PROGRAM, "train", "model.toml", "--data", "text.txt", "--out", "out", "--recipe", "mxfp8"], cwd=folder,
                   check=True, stdout=subprocess.DEVNULL)
    return folder / "out/checkpoints/step-00000003"


def expected_shapes():
    hidden, expert = 32, 24
    shapes = {"model.embed_tokens.weight": [256, hidden], "model.norm.weight": [hidden], "lm_head.weight": [256, hidden]}
    for layer in range(3):
        at = f"model.layers.{layer}."
        shapes |= {at + "input_layernorm.weight": [hidden], at + "post_attention_layernorm.weight": [hidden],
                   at + "self_attn.q_proj.weight": [32, hidden], at + "self_attn.k_proj.weight": [16, hidden],
                   at + "self_attn.v_proj.weight": [16, hidden], at + "self_attn.o_proj.weight": [hidden, 32]}
        if layer == 0:
            shapes |= {at + "mlp.gate_up_proj.weight": [96, hidden], at + "mlp.down_proj.weight": [hidden, 48]}
        else:
            shapes |= {at + "mlp.gate.weight": [4, hidden], at + "mlp.gate.e_score_correction_bias": [4],
                       at + "mlp.experts.gate_up_proj": [4, 2 * expert, hidden],
                       at + "mlp.experts.down_proj": [4, hidden, expert],
                       at + "mlp.shared_experts.gate_up_proj.weight": [4 * expert, hidden],
                       at + "mlp.shared_experts.down_proj.weight": [hidden, 2 * expert]}
    return shapes


def test_weights_open_under_their_documented_names(checkpoint):
    weights = load_torch(checkpoint / "model.safetensors")
    assert {name: list(tensor.shape) for name, tensor in weights.items()} == expected_shapes()
    for name, tensor in weights.items():
        assert tensor.dtype == torch.float32 and torch.isfinite(tensor).all(), name


def test_moments_open_too(checkpoint):
    moments = load_file(checkpoint / "optimizer.safetensors")
    trained = [name for name in expected_shapes() if not name.endswith("e_score_correction_bias")]
    assert set(moments) == {f"{moment}.{name}" for name in trained for moment in ("first_moment", "second_moment")}
    assert all((moments[f"second_moment.{name}"] >= 0).all() for name in trained)


def test_metadata_says_what_it_is(checkpoint):
    with safe_open(checkpoint / "model.safetensors", framework="np") as file:
        assert file.metadata() == {"format": "pt", "recipe": "mxfp8", "step": "3"}
    state = json.loads((checkpoint / "state.json").read_text())
    assert state["step"] == 3 and state["data"]["position"] == 6 and "hidden = 32" in state["config"]
    assert state["files"]["model.safetensors"]["bytes"] == (checkpoint / "model.safetensors").stat().st_size
