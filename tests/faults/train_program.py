"""`trireme train` as a process that tests disturb: a tiny model, its workers, kill, stop and resume."""

import json
import os
import random
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")
HAS_TENSOR = os.path.exists(os.path.join(BIN, "trireme-tensor"))
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "SLURM_", "MKL_"))}

# 24 micro-batches in as many leaves: 1, 2, 3, 4, 6, 8 … workers give the same bits.
TINY = ["--model", "gpt2-tiny", "--model.layers=1", "--model.hidden=16", "--model.seq=8", "--train.global_batch=24",
        "--train.micro_batch=1", "--train.leaves=24", "--data.generated_size=20000", "--observe.tensorboard=false"]


def start(arguments, cwd, **variables):
    return subprocess.Popen([TRIREME, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
                            env={**ENVIRONMENT, **variables})


def run(*arguments, cwd, timeout=60, **variables):
    return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=timeout, cwd=cwd,
                          env={**ENVIRONMENT, **variables})


def workers_of(process):
    """Process ids of the workers that a `trireme train` has started."""
    found = []
    try:
        with open(f"/proc/{process.pid}/task/{process.pid}/children") as children:
            for pid in children.read().split():
                with open(f"/proc/{pid}/cmdline") as words:
                    if words.read().split("\0")[0].endswith("trireme-tensor"):
                        found.append(int(pid))
    except OSError:
        pass  # one of them has ended meanwhile
    return found


def wait_for(condition, timeout, what):
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what}: not within {timeout} s")
        time.sleep(0.01)


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def events(folder, kind=None):
    try:
        with open(os.path.join(folder, "events.jsonl")) as log:
            lines = [json.loads(line) for line in log if line.endswith("\n")]
    except OSError:
        return []
    return [line for line in lines if kind in (None, line["kind"])]


def checkpoints(folder):
    """Steps that are committed, newest first."""
    try:
        names = os.listdir(os.path.join(folder, "checkpoints"))
    except OSError:
        return []
    return sorted((int(name[5:]) for name in names if name.startswith("step-") and name[5:].isdigit()), reverse=True)


@unittest.skipUnless(HAS_TENSOR, "built without libtorch")
class TrainTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="trireme-train-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def path(self, *parts):
        return os.path.join(self.folder, *parts)

    def train(self, name, *more, workers=2, ends_with=0, timeout=60, **variables):
        """Trains to the end in the run folder `name`."""
        result = run("train", *TINY, f"--observe.run_dir={self.path(name)}", "--nproc", str(workers), *more,
                     cwd=self.folder, timeout=timeout, **variables)
        self.assertEqual(result.returncode, ends_with, result.stdout + result.stderr)
        return result

    def resume(self, name, workers, *more, timeout=60, **variables):
        result = run("train", "--resume", self.path(name), "--nproc", str(workers), *more, cwd=self.folder,
                     timeout=timeout, **variables)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result

    def assert_same_bits(self, a, b):
        """Weights and optimizer of the newest checkpoints."""
        result = run("checkpoint", "diff", self.path(a), self.path(b), cwd=self.folder)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.assertRegex(result.stdout, r"equal: \d+ tensors, bit for bit")
        self.assertEqual(checkpoints(self.path(a))[0], checkpoints(self.path(b))[0])


STEPS = 30
SLOWLY = "point=train.step,kind=delay:30"  # so that a moment drawn at random is most often one of training


class KillTest(TrainTest):
    """One undisturbed run; others are killed, resumed on other numbers of workers, and must end like it."""

    def setUp(self):
        super().setUp()
        self.settings = [f"--train.steps={STEPS}", "--checkpoint.every=3", "--optimizer.schedule=cosine"]
        self.train("calm", *self.settings, workers=1)

    def kill_once(self, name, draw, workers):
        """Starts or resumes, and kills a worker or the launcher after a random time."""
        folder = self.path(name)
        before = checkpoints(folder)[:1]
        resumed = os.path.exists(os.path.join(folder, "config.toml"))
        arguments = ["--resume", folder] if resumed else [*TINY, *self.settings, f"--observe.run_dir={folder}"]
        process = start(["train", *arguments, "--nproc", str(workers)], self.folder, TRIREME_FAULT=SLOWLY)
        time.sleep(draw.uniform(0.1, 1.8))
        ranks = workers_of(process)
        victim = draw.choice([process.pid, *ranks])
        try:
            os.kill(victim, signal.SIGKILL)
        except ProcessLookupError:
            pass
        try:
            output = process.communicate(timeout=15)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError("the job did not end within 15 s of a worker's death") from None
        wait_for(lambda: all(is_gone(pid) for pid in ranks), 5, "the workers' end")
        if process.returncode == 0:  # it had finished
            return "finished"
        if victim != process.pid:
            self.assertIn("was killed by SIGKILL", output[1])
        self.assertGreaterEqual(checkpoints(folder)[:1], before, "a committed step is lost")
        return f"{'launcher' if victim == process.pid else 'worker'} at step {checkpoints(folder)[:1]}"

    def chain(self, seed, num_kills):
        draw = random.Random(seed)
        name = f"killed-{seed}"
        story = []
        for _ in range(num_kills):
            workers = draw.choice([1, 2, 3, 4])
            story.append(f"{workers} workers: {self.kill_once(name, draw, workers)}")
        try:
            if os.path.exists(self.path(name, "config.toml")):
                self.resume(name, draw.choice([1, 2, 3]))
            else:
                self.train(name, *self.settings)
            self.assert_same_bits("calm", name)
        except AssertionError as error:
            raise AssertionError(f"seed {seed}: {story}\n{error}") from None
        left = [entry for entry in os.listdir(self.path(name, "checkpoints")) if ".tmp" in entry]
        self.assertEqual(left, [], "leftovers of killed saves")
