#!/usr/bin/env python3
# ctest: timeout=300
"""Tensor parallelism in real processes: trains, saves, goes on in other layouts, and is compared by verify."""
import json
import os
import shutil
import unittest

from layouts import LayoutTest, run

SMALL = ["--model", "gpt2-tiny", "--model.layers=2", "--model.hidden=32", "--model.heads=4", "--model.seq=16",
         "--train.global_batch=8", "--train.micro_batch=2", "--data.generated_size=20000", "--optimizer.schedule=constant",
         "--optimizer.warmup_steps=0"]


class TensorParallel(LayoutTest):
    def train(self, layout, *more):
        words = [f"--parallel.{word}" for word in layout.split(",")]
        done = run("train", *SMALL, *words, "--json", "--train.target_loss=0", *more, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return json.loads(done.stdout)

    def test_goes_on_in_another_layout(self):
        whole = self.train("dp=1", "--train.steps=6", "--observe.run_dir=whole")
        self.train("dp=1,tp=2", "--train.steps=3", "--observe.run_dir=cut")
        for layout, name in (("dp=2,tp=1", "dp=2"), ("dp=1,tp=4", "dp=1,tp=4"), ("dp=2,tp=2,sequence=true", "dp=2,tp=2,sequence")):
            with self.subTest(layout=layout):
                shutil.rmtree(os.path.join(self.folder, "again"), ignore_errors=True)
                shutil.copytree(os.path.join(self.folder, "cut"), os.path.join(self.folder, "again"))
                words = [f"--parallel.{word}" for word in layout.split(",")]
                done = run("train", "--resume", "again", *words, "--train.steps=6", "--json", cwd=self.folder)
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                resumed = json.loads(done.stdout)
                self.assertEqual(resumed["layout"], name)
                self.assertAlmostEqual(resumed["final_loss"], whole["final_loss"], delta=1e-5 * whole["final_loss"])

    def test_verify_calls_it_noise(self):
        done = run("verify", "--a", "dp=1", "--b", "dp=1,tp=2", "--steps", "3", "--json", *SMALL, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        verdict = json.loads(done.stdout)
        self.assertEqual(verdict["verdict"], "noise")
        done = run("verify", "--a", "dp=1,tp=2", "--b", "dp=2,tp=2", "--steps", "3", "--json", *SMALL, cwd=self.folder)
        self.assertEqual(json.loads(done.stdout)["verdict"], "equal", done.stdout)

    def test_mistakes_cost_nothing(self):
        done = run("train", *SMALL, "--parallel.dp=1", "--parallel.tp=3", cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("model.heads = 4 cannot be split over parallel.tp = 3", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
