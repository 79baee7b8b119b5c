"""A loss that is not finite: the run stops with the step, the layer and the tensor, after saving what is needed to look."""
import json

from trainer import TOY, Folder, check, says

with Folder() as folder:
    # A first step so long that the next products overflow.
    (folder.path / "wild.toml").write_text(TOY.replace("learning_rate = 3e-3", "learning_rate = 1e30", 1))
    result = folder.train("run", "--steps", 20, "--warmup", 0, "--checkpoint-every", 1, "--recipe", "bf16", model="wild.toml")
    says(result, "at step ", "the first tensor that is not finite is", code=2)
    [diagnostic] = (folder.path / "run").glob("diagnostic-step-*")
    found = json.loads((diagnostic / "diagnostic.json").read_text())
    check(found["tensor"] and found["tensor"] in result.stdout, found, result.stdout)
    check(found["value"] in ("nan", "inf", "-inf"), found)
    check((diagnostic / "batch.safetensors").exists() and (diagnostic / found["checkpoint"] / "model.safetensors").exists())
    check(f"step {found['step']}" in result.stdout, found)
    check(folder.metrics("run", "note")[-1]["text"] in result.stdout, "the metrics do not say why it ended")
    says(folder.octet("info", "--checkpoint", str(diagnostic)), "step", code=0)
    # The last step's weights, which no step uses any more, are evaluated.
    result = folder.train("evaluated", "--steps", 1, "--warmup", 0, "--learning-rate", 1e15, "--recipe", "bf16")
    says(result, "eval loss nan", "the evaluation loss is nan at step 1", "the first tensor that is not finite is", code=2)
    [diagnostic] = (folder.path / "evaluated").glob("diagnostic-step-1")
    check(json.loads((diagnostic / "diagnostic.json").read_text())["what"] == "evaluation loss")
    check(not list((folder.path / "evaluated" / "checkpoints").glob("*")), "weights that are of no use were kept as a checkpoint")
    # What is left of a step that long writes no text.
    says(folder.octet("sample", str(diagnostic), "--threads", 1), "scores for the next token are not all finite", code=2)
print("non-finite:", result.stdout.splitlines()[-1][:160])
