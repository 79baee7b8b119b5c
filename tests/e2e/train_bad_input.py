"""Bad input: a sentence with what was given and what was expected, exit code 2, and nothing half-written."""
import shutil

from trainer import TOY, Folder, check, says

with Folder() as folder:
    def refused(*sentences, arguments=(), **options):
        result = folder.train("refused", *arguments, **options)
        says(result, *sentences, code=2)
        check(not (folder.path / "refused" / "metrics.jsonl").exists(), "a refused run began", result.stdout)

    refused("nowhere.txt' does not exist", data="nowhere.txt")
    (folder.path / "empty.txt").write_text("")
    refused("empty.txt' is empty", data="empty.txt")
    (folder.path / "short.txt").write_text("too short")
    refused("has 9 tokens", "expected at least 33", data="short.txt")
    refused("a folder", data=".")
    (folder.path / "odd.bin").write_bytes(b"abc")
    refused("not a whole number of 16-bit tokens", data="odd.bin")
    (folder.path / "large.bin").write_bytes(b"\xff\xff" * 100)
    refused("token 0 of", "65535", "vocabulary is 256", data="large.bin")
    refused("known: bytes, u16, u32", arguments=["--tokens", "words"])
    refused("no.toml", model="no.toml")
    for field, wrong in (("tied_head = true", "tied_heads = true"), ("heads = 2", "heads = 0"), ("per_token = 2", "per_token = 9"),
                         ("hidden = 32", "hidden = \"wide\"")):
        (folder.path / "wrong.toml").write_text(TOY.replace(field, wrong, 1))
        refused(wrong.split(" ")[0], model="wrong.toml")
    (folder.path / "wrong.toml").write_text("this is not TOML")
    refused("wrong.toml", model="wrong.toml")
    (folder.path / "wrong.toml").write_text(TOY.replace("vocabulary = 256", "vocabulary = 2147483647"))
    refused("the model needs", "and this machine has", model="wrong.toml")
    refused("fp9", arguments=["--recipe", "fp9"])
    refused("twice", arguments=["--compare", "bf16,bf16"])
    refused("'abacus'", arguments=["--device", "abacus"])
    refused("no checkpoint", "without --resume", arguments=["--resume"])
    refused("give one of them", arguments=["--resume", "--overwrite"])

    says(folder.train("run", "--steps", 3), code=0)
    losses = folder.losses("run")
    again = folder.train("run", "--steps", 3)
    says(again, "has a run already", "--resume", "--overwrite", code=2)
    (folder.path / "other.toml").write_text(TOY.replace("hidden = 32", "hidden = 48"))
    says(folder.train("run", "--steps", 9, "--resume", model="other.toml"), "is a checkpoint of another model",
         "hidden = 32", "hidden = 48", code=2)
    (folder.path / "other.txt").write_text("another text altogether, but long enough to be trained on. " * 20)
    says(folder.train("run", "--steps", 9, "--resume", data="other.txt"), "text.txt", "other.txt", code=2)
    check(folder.losses("run") == losses, "a refused resume changed the metrics")

    newest = folder.path / "run/checkpoints/step-00000003"
    for name in ("model.safetensors", "optimizer.safetensors", "state.json"):
        good = (newest / name).read_bytes()
        for bad in (good[:len(good) // 2], good[:-9] + bytes([good[-9] ^ 1]) + good[-8:]):
            (newest / name).write_bytes(bad)
            result = folder.train("run", "--steps", 9, "--resume")
            says(result, name, code=2)
            check("truncated" in result.stdout or "altered" in result.stdout, result.stdout)
            says(folder.octet("info", "--checkpoint", "run"), name, code=2)
        (newest / name).write_bytes(good)
    says(folder.octet("sample", "nowhere"), "there is no checkpoint in 'nowhere'", code=2)
    says(folder.octet("info", "--model", "nothing"), "nothing", code=2)
    shutil.rmtree(folder.path / "refused", ignore_errors=True)
print("bad input: refused with a sentence")
