"""Trainings in layouts, in real processes, whose checkpoints are compared bit for bit: for tests."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")


def run(*arguments, cwd, **more):
    return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=200, cwd=cwd, **more)


def words_of(layout):
    """dp=2,pp=2 as keys."""
    return [f"--parallel.{word}" for word in layout.split(",")]


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
