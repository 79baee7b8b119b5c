"""Where and of what a measurement on an NVIDIA GPU is, for the head of its file of results."""
import subprocess
import sys
import time

import torch


def stamp(script, commit, **more):
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    gpu, driver = subprocess.run(query, capture_output=True, text=True).stdout.strip().split("\n")[0].split(", ")
    return {"gpu": gpu, "driver": driver, "cuda": torch.version.cuda, "torch": torch.__version__, "commit": commit,
            "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()), "command": " ".join([f"bench/peers/{script}"] + sys.argv[1:]), **more}
