"""--compare: the same weights and batches in every recipe, one report with pictures; without gnuplot, tables alone."""
import os
import shutil

from trainer import Folder, check, says

with Folder() as folder:
    arguments = ["--compare", "bf16,fp8_rowwise,fp8_blockwise,mxfp8:mx=floor,wgrad=bf16", "--steps", 12, "--eval-every", 4,
                 "--observe-every", 4]
    result = folder.train("twins", *arguments)
    says(result, "unigram entropy", "report:", "gap to bf16", "kept for backward", code=0)
    recipes = [p.name for p in (folder.path / "twins").iterdir() if p.is_dir()]
    check(sorted(recipes) == ["bf16", "fp8_blockwise", "fp8_rowwise", "mxfp8:mx=floor,wgrad=bf16"], recipes)
    first = {folder.losses(f"twins/{recipe}")[0][1] for recipe in recipes}
    check(max(first) - min(first) < 0.05, "the twins did not begin from the same weights", first)
    step = folder.metrics("twins/fp8_rowwise")[3]
    check(step["scales"] and {"layer", "tensor", "underflowed", "saturated"} <= set(step["scales"][0]), step)
    check(sum(step["tokens_per_expert"][0]) == 4 * 16 * 2, step["tokens_per_expert"])
    page = (folder.path / "twins/report.html").read_text()
    pictures = page.count("data:image/svg+xml;base64,")
    if shutil.which("gnuplot"):
        check(pictures >= 12, f"{pictures} pictures")
    check("<script" not in page and "http" not in page.replace("http://www.w3.org", ""), "the report reaches outside")
    for word in ("Training loss", "Gap to bf16", "mxfp8:mx=floor,wgrad=bf16") if pictures else ():
        check(word in page, word)

    bare = folder.path / "bare"
    bare.mkdir()
    os.symlink(shutil.which("sh"), bare / "sh")
    result = folder.train("alone", "--steps", 3, env={"PATH": str(bare)})
    says(result, "gnuplot was not found", code=0)
    page = (folder.path / "alone/report.html").read_text()
    check("The pictures are left out" in page and "data:image" not in page and "<table>" in page)

    text = folder.octet("sample", "twins/fp8_rowwise", "--tokens", 20, "--prompt", "The ")
    says(text, "The ", code=0)
    check(text.stdout == folder.octet("sample", "twins/fp8_rowwise", "--tokens", 20, "--prompt", "The ").stdout, "it differs")
    says(folder.octet("info", "--model", "toy.toml"), "parameters", "FLOPs", code=0)
print(f"report: {pictures} pictures in one file")
