"""Tokens of a SentencePiece model: made once and kept, trained on, resumed from, written back as text."""
import shutil
import subprocess
import sys

from trainer import TOY, Folder, check, says

if not shutil.which("spm_train"):
    print("spm_train is not there; scripts/setup installs it (Debian: sentencepiece)", file=sys.stderr)
    sys.exit(1)

with Folder() as folder:
    subprocess.run(["spm_train", "--input=text.txt", "--model_prefix=pieces", "--vocab_size=60", "--hard_vocab_limit=false"],
                   cwd=folder.path, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    pieces = sum(1 for _ in open(folder.path / "pieces.vocab"))
    tokens = ["--tokens", "sentencepiece:pieces.model"]

    whole = folder.train("whole", *tokens, "--steps", 30, "--checkpoint-every", 10)
    says(whole, "report:", code=0)
    losses = folder.losses("whole")
    check(losses[-1][1] < losses[0][1], "the loss did not fall", losses)
    [made] = folder.path.rglob("tokens-*.bin")
    encoded = subprocess.run(["spm_encode", "--model=pieces.model", "--output_format=id", "text.txt"], cwd=folder.path, text=True,
                             check=True, stdout=subprocess.PIPE).stdout.split()
    ids = made.read_bytes()
    check([int(i) for i in encoded] == [int.from_bytes(ids[i:i + 4], "little") for i in range(0, len(ids), 4)],
          "the tokens are not those that spm_encode makes")

    says(folder.train("parts", *tokens, "--steps", 10, "--checkpoint-every", 10), code=0)
    says(folder.train("parts", *tokens, "--steps", 30, "--checkpoint-every", 10, "--resume"), "resumed from", code=0)
    sample = folder.octet("sample", "whole", "--prompt", "The 7th line", "--tokens", 20)
    says(sample, "The 7th line", code=0)

    (folder.path / "narrow.toml").write_text(TOY.replace("vocabulary = 256", "vocabulary = 40"))
    says(folder.train("narrow", *tokens, model="narrow.toml"), "vocabulary of 40", f"makes {pieces} different tokens", code=2)
    says(folder.train("missing", "--tokens", "sentencepiece:none.model"), "none.model", code=2)
    says(folder.train("missing", "--tokens", "sentencepiece:."), "'.' is a folder, expected a SentencePiece model's file", code=2)
    (folder.path / "broken.model").write_text("not a model")
    says(folder.train("broken", "--tokens", "sentencepiece:broken.model"), "broken.model", code=2)
print(f"sentencepiece: {pieces} pieces, {len(ids) // 4} tokens")
