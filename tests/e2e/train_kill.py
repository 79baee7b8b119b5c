"""Killed a hundred times, at random instants and while it writes: the newest complete checkpoint always loads."""
import random
import time

from trainer import Folder, check, says

KILLS = 100
ARGUMENTS = ["--steps", 1000000, "--checkpoint-every", 1, "--keep", 2, "--eval-every", 0, "--observe-every", 0]

with Folder() as folder:
    random.seed(1)
    checkpoints = folder.path / "run" / "checkpoints"
    newest_before, while_writing = -1, 0
    for kill in range(KILLS):
        process = folder.start("run", *ARGUMENTS, *(["--resume"] if newest_before >= 0 else ["--overwrite"]))
        deadline = time.monotonic() + 30
        # Until it has gone on from the last checkpoint, so that every kill falls into work.
        while not any(int(p.name[5:]) > newest_before for p in checkpoints.glob("step-*")):
            check(process.poll() is None, process.stdout.read() if process.poll() is not None else "")
            check(time.monotonic() < deadline, "no checkpoint within 30 seconds")
            time.sleep(0.001)
        if kill % 2:
            time.sleep(random.uniform(0, 0.03))
        else:
            while not any(checkpoints.glob(".writing-*")):
                pass
        process.kill()
        process.communicate()
        while_writing += any(checkpoints.glob(".writing-*"))
        names = folder.checkpoints("run")
        check(names, "there is no checkpoint")
        newest = int(names[-1][5:])
        check(newest > newest_before, f"the newest checkpoint is {newest}, it was {newest_before}")
        newest_before = newest
        if kill % 10 == 9:  # every byte of it; the other times the next start loads it, and would say
            says(folder.octet("info", "--checkpoint", "run"), names[-1], code=0)
    check(while_writing >= KILLS // 10, f"only {while_writing} of {KILLS} kills came while a checkpoint was written")
    says(folder.train("run", *ARGUMENTS, "--steps", newest_before + 2, "--resume"), "resumed from", code=0)
    check(not any(checkpoints.glob(".*-step-*")), "leftovers of kills were not removed")
print(f"kill: {KILLS} kills, {while_writing} of them while a checkpoint was written; {newest_before} steps survived")
