"""Trainings in layouts, in real processes, whose checkpoints are compared bit for bit: for tests."""
import json
import os
import resource
import shutil
import subprocess
import tempfile
import time
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")
MIB = 1 << 20


def run(*arguments, cwd, **more):
    return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=200, cwd=cwd, **more)


def words_of(layout):
    """dp=2,pp=2 as keys."""
    return [f"--parallel.{word}" for word in layout.split(",")]


def data_of(pid):
    """Bytes of private memory, as RLIMIT_DATA counts them; 0 where the process has gone."""
    try:
        with open(f"/proc/{pid}/status") as status:
            return next((int(line.split()[1]) << 10 for line in status if line.startswith("VmData:")), 0)
    except (FileNotFoundError, ProcessLookupError):
        return 0


def descendants(pid):
    try:
        with open(f"/proc/{pid}/task/{pid}/children") as children:
            own = [int(child) for child in children.read().split()]
    except (FileNotFoundError, ProcessLookupError):
        return []
    return own + [each for child in own for each in descendants(child)]


@unittest.skipUnless(os.path.exists(os.path.join(BIN, "trireme-tensor")), "built without libtorch")
class LayoutTest(unittest.TestCase):
    """What each layout trains (SMALL), and for how long (STEPS), its tests say."""
    SMALL = []
    STEPS = 6

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="trireme-layouts-")
        self.addCleanup(shutil.rmtree, self.folder)

    def run_json(self, *arguments):
        done = run(*arguments, "--json", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def limited_to(self, num_bytes):
        """For run(): what a process may allocate for itself, beside what it has without a model to speak of."""
        command = [TRIREME, "train", *self.SMALL, "--parallel.dp=4", "--train.global_batch=8", "--train.steps=40"]
        largest = 0
        with subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as job:
            while job.poll() is None:
                largest = max([largest, *(data_of(pid) for pid in descendants(job.pid))])
                time.sleep(0.01)
        self.assertEqual(job.returncode, 0)
        limit = largest + num_bytes
        return {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))}

    def train(self, name, layout, *more, steps=None):
        return self.run_json("train", *self.SMALL, *words_of(layout), f"--train.steps={steps or self.STEPS}",
                             f"--observe.run_dir={name}", *more)

    def resume(self, name, layout, *more):
        return self.run_json("train", "--resume", name, *words_of(layout), f"--train.steps={self.STEPS}", *more)

    def assert_same_bits(self, a, b):
        """Weights and optimizer of the newest checkpoints."""
        done = run("checkpoint", "diff", a, b, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertRegex(done.stdout, r"equal: \d+ tensors, bit for bit")
