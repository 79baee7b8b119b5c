"""A disk without room: the run says so, keeps the old checkpoint, goes on, and its exit code tells."""
import resource

from trainer import Folder, check, says


def no_room():
    resource.setrlimit(resource.RLIMIT_FSIZE, (60000, 60000))  # the metrics fit, the weights do not


with Folder() as folder:
    says(folder.train("run", "--steps", 4, "--observe-every", 0), code=0)
    before = (folder.path / "run/checkpoints/step-00000004/model.safetensors").read_bytes()
    check(len(before) > 60000, len(before))
    result = folder.train("run", "--steps", 10, "--checkpoint-every", 3, "--observe-every", 0, "--resume", preexec_fn=no_room)
    says(result, "the checkpoint of step 6 was not written", "File too large", "step-00000004' is kept",
         "the checkpoint of step 10 was not written", "training goes on", "step 10/10", code=1)
    check(result.stdout.count("the checkpoint of step 10 was not written") == 1, result.stdout)
    check(folder.checkpoints("run") == ["step-00000004"], folder.checkpoints("run"))
    check((folder.path / "run/checkpoints/step-00000004/model.safetensors").read_bytes() == before, "it was touched")
    check([p.name for p in (folder.path / "run/checkpoints").iterdir()] == ["step-00000004"], "something was left")
    says(folder.train("run", "--steps", 10, "--resume"), "resumed from", "step 10/10", code=0)
    check(folder.checkpoints("run")[-1] == "step-00000010")
print("disk: the old checkpoint is kept and the run goes on")
