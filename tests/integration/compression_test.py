#!/usr/bin/env python3
# ctest: timeout=300
"""Compressed gradients in real processes: what is kept for later is saved, and comes back with as many workers or others."""
import json
import os
import shutil
import subprocess
import tempfile
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")
SMALL = ["--model", "gpt2-tiny", "--model.layers=2", "--model.hidden=32", "--model.heads=4", "--model.seq=16",
         "--train.global_batch=8", "--train.micro_batch=2", "--data.generated_size=20000", "--optimizer.schedule=constant",
         "--optimizer.warmup_steps=0", "--train.target_loss=0"]


@unittest.skipUnless(os.path.exists(os.path.join(BIN, "trireme-tensor")), "built without libtorch")
class Compression(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, *arguments):
        return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=120, cwd=self.folder)

    def run_well(self, *arguments):
        done = self.run_program(*arguments)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def test_what_is_kept_comes_back(self):
        for method, layout in (("topk", "dp=2"), ("sign", "dp=2"), ("powersgd", "dp=2"), ("topk", "dp=2,pp=2"),
                               ("onebit_adam", "dp=2"), ("sign", "dp=2,zero=3")):
            with self.subTest(method=method, layout=layout):
                words = [f"--parallel.{word}" for word in layout.split(",")] + [f"--compression.method={method}"]
                if method == "onebit_adam":
                    words += ["--train.clip=0", "--compression.warmup_steps=2"]
                for name in ("whole", "cut"):
                    shutil.rmtree(os.path.join(self.folder, name), ignore_errors=True)
                self.run_well("train", *SMALL, *words, "--train.steps=6", "--observe.run_dir=whole")
                self.run_well("train", *SMALL, *words, "--train.steps=3", "--observe.run_dir=cut")
                self.run_well("train", "--resume", "cut", *words, "--train.steps=6")
                said = self.run_well("checkpoint", "diff", "whole/checkpoints/step-000006", "cut/checkpoints/step-000006")
                self.assertIn("equal", said)

    def test_other_numbers_of_workers_go_on(self):
        self.run_well("train", *SMALL, "--parallel.dp=2", "--compression.method=topk", "--train.steps=3", "--observe.run_dir=run")
        for layout in ("dp=4", "dp=1", "dp=2"):
            words = [f"--parallel.{word}" for word in layout.split(",")]
            result = json.loads(self.run_well("train", "--resume", "run", *words, "--train.steps=5", "--json"))
            self.assertEqual(result["steps"], 5)
            shutil.rmtree(os.path.join(self.folder, "run", "checkpoints", "step-000005"))

    def test_bytes_fall(self):
        def bytes_of(method):
            return json.loads(self.run_well("train", *SMALL, "--parallel.dp=2", "--train.steps=4", "--json",
                                            f"--compression.method={method}"))["reduced_bytes_per_step"]
        dense = bytes_of("none")
        self.assertLess(bytes_of("topk"), dense / 20)
        self.assertLess(bytes_of("sign"), dense / 20)

    def test_mistakes_cost_nothing(self):
        done = self.run_program("train", *SMALL, "--compression.method=topc")
        self.assertEqual(done.returncode, 2)
        self.assertIn("topk", done.stderr)
        done = self.run_program("train", *SMALL, "--compression.method=qsgd", "--compression.bits=3")
        self.assertEqual(done.returncode, 2)
        self.assertIn("1, 2, 4 or 8", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
