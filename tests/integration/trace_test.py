#!/usr/bin/env python3
# ctest: timeout=200
"""`trireme trace`: what all ranks did becomes one timeline, the predicted one beside it."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
SMALL = ["--model", "gpt2-tiny", "--model.layers=4", "--model.hidden=32", "--model.heads=4", "--model.seq=16",
         "--train.global_batch=8", "--train.micro_batch=2", "--data.generated_size=20000", "--train.target_loss=0",
         "--optimizer.warmup_steps=0", "--train.steps=5", "--observe.run_dir=run"]


@unittest.skipUnless(os.path.exists(os.path.join(BIN, "trireme-tensor")), "built without libtorch")
class Trace(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)

    def run_program(self, *arguments):
        return subprocess.run([os.path.join(BIN, "trireme"), *arguments], capture_output=True, text=True, timeout=120,
                              cwd=self.folder)

    def traced(self, *words):
        done = self.run_program("train", *SMALL, *words, "--observe.trace_steps=2")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        done = self.run_program("trace", "run", "--json", "--svg", "step.svg")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("<svg", (self.folder / "step.svg").read_text())
        return json.loads(done.stdout), json.loads((self.folder / "run" / "trace.json").read_text())["traceEvents"]

    def test_a_pipeline(self):
        report, events = self.traced("--parallel.dp=2", "--parallel.pp=2", "--parallel.schedule=zb-h1")
        self.assertEqual([(step["step"], step["replica"]) for step in report["steps"]], [(3, 0), (3, 1), (4, 0), (4, 1)])
        for step in report["steps"]:
            self.assertGreater(step["predicted_ms"], 0)
            self.assertGreater(step["measured_ms"], 0)
            self.assertEqual(len(step["forward_ms"]), 2)
        computed = [event for event in events if event.get("cat") == "measured" and event["name"].startswith("Forward")]
        self.assertEqual(len(computed), 2 * 2 * 4)  # steps, stages, micro-batches over both replicas
        self.assertEqual({event["pid"] for event in computed}, {0, 1, 2, 3})
        # The second stage computes a micro-batch after the first has, whatever their clocks said.
        for replica in (0, 1):
            first = min(event["ts"] + event["dur"] for event in computed if event["pid"] == 2 * replica)
            second = min(event["ts"] for event in computed if event["pid"] == 2 * replica + 1)
            self.assertGreater(second, first - 1000)

    def test_stages_of_different_shapes(self):
        report, events = self.traced("--parallel.stages=2x1,1x1")
        self.assertEqual([step["step"] for step in report["steps"]], [3, 4])
        forward = {rank: [event["name"] for event in events if event["pid"] == rank and event.get("cat") == "measured" and
                          event["name"].startswith("Forward")] for rank in (0, 1, 2)}
        self.assertEqual([len(forward[rank]) for rank in (0, 1, 2)], [2 * 2, 2 * 2, 2 * 4])
        self.assertEqual({event["pid"] for event in events if event.get("cat") == "predicted"}, {0, 1, 2})

    def test_plain_data_parallelism(self):
        report, events = self.traced("--parallel.dp=2")
        self.assertEqual(len(report["steps"]), 4)
        self.assertEqual({event["pid"] for event in events}, {0, 1})

    def test_mistakes(self):
        done = self.run_program("trace", "nowhere")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no folder", done.stderr)
        (self.folder / "run").mkdir()
        done = self.run_program("trace", "run")
        self.assertEqual(done.returncode, 2)
        self.assertIn("observe.trace_steps", done.stderr)
        (self.folder / "run" / "traces").mkdir()
        (self.folder / "run" / "traces" / "step-000001-rank-00000.json").write_text("{\"rank\": 0")
        done = self.run_program("trace", "run")
        self.assertEqual(done.returncode, 2)
        self.assertIn("step-000001-rank-00000.json", done.stderr)


if __name__ == "__main__":
    unittest.main()
