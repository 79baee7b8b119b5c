"""Resume is exactly equal: losses, gradient norms and every byte of the weights, however the run was interrupted."""
import signal
import time

from trainer import Folder, check, says

ARGUMENTS = ["--steps", 40, "--checkpoint-every", 7, "--accumulate", 2, "--eval-every", 10, "--recipe", "fp8_rowwise"]


def weights(folder, out):
    newest = folder.path / out / "checkpoints" / folder.checkpoints(out)[-1]
    return [(newest / name).read_bytes() for name in ("model.safetensors", "optimizer.safetensors")]


with Folder() as folder:
    whole = folder.train("whole", *ARGUMENTS)
    says(whole, "eval loss", "report:", code=0)
    check(folder.checkpoints("whole") == ["step-00000035", "step-00000040"], folder.checkpoints("whole"))
    expected = folder.losses("whole")
    check(len(expected) == 40 and expected[-1][1] < expected[0][1], "the loss did not fall", expected)

    # Any number of threads.
    says(folder.train("threads", *ARGUMENTS, "--threads", 2), code=0)
    check(folder.losses("threads") == expected, "two threads gave other losses")
    check(weights(folder, "threads") == weights(folder, "whole"), "two threads gave other weights")

    # Ctrl-C in the middle: a checkpoint of that very step, then --resume to the end.
    process = folder.start("interrupted", *ARGUMENTS)
    metrics = folder.path / "interrupted" / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 5:
        check(process.poll() is None, "it ended before it could be interrupted")
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    output = process.communicate(timeout=60)[0]
    check(process.returncode == 130, f"exit code {process.returncode}", output)
    check("go on with --resume" in output, output)
    stopped = folder.losses("interrupted")[-1][0]
    check(stopped < 40 and folder.checkpoints("interrupted")[-1] == f"step-{stopped:08}", stopped, output)
    says(folder.train("interrupted", *ARGUMENTS, "--resume"), "resumed from", code=0)
    check(folder.losses("interrupted") == expected, "the resumed run's losses differ")
    check(weights(folder, "interrupted") == weights(folder, "whole"), "the resumed run's weights differ")
    evaluated = [[(m["step"], m["loss"]) for m in folder.metrics(out, "eval")] for out in ("whole", "interrupted")]
    check(evaluated[0] == evaluated[1], "the resumed run's evaluations differ", evaluated)

    # A kill loses the steps after the checkpoint; they come again with the same bits.
    process = folder.start("killed", *ARGUMENTS)
    checkpoints = folder.path / "killed" / "checkpoints"
    while not (checkpoints / "step-00000014").exists():
        check(process.poll() is None, "it ended before it could be killed")
        time.sleep(0.002)
    process.kill()
    process.communicate()
    says(folder.train("killed", *ARGUMENTS, "--resume"), "resumed from", code=0)
    check(folder.losses("killed") == expected, "the losses after a kill differ")
    check(weights(folder, "killed") == weights(folder, "whole"), "the weights after a kill differ")

    # The second Ctrl-C ends it at once.
    process = folder.start("twice", *ARGUMENTS, "--steps", 100000)
    metrics = folder.path / "twice" / "metrics.jsonl"
    while not metrics.exists() or len(metrics.read_text().splitlines()) < 3:
        time.sleep(0.002)
    process.send_signal(signal.SIGINT)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    check(process.returncode == 130, f"exit code {process.returncode}")

    # Another seed is another run.
    says(folder.train("seed", *ARGUMENTS, "--seed", 2), code=0)
    check(folder.losses("seed")[0][1] != expected[0][1], "another seed gave the same loss")
print("resume: equal to the last bit")
