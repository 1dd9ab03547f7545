#!/usr/bin/env python3
# ctest: timeout=200
"""`trireme report`: of runs that were killed, that go on, that were resumed; and what it says of folders that are none."""
import json
import os
import signal
import subprocess
import time
import unittest
from pathlib import Path

from layouts import TRIREME, LayoutTest, run

SMALL = ["--model", "gpt2-tiny", "--model.layers=1", "--model.hidden=32", "--model.heads=2", "--model.seq=16",
         "--train.global_batch=16", "--train.micro_batch=8", "--data.generated_size=65536", "--train.log_every=1",
         "--nproc", "1"]


class Report(LayoutTest):
    def wait_for_steps(self, process, name, steps):
        events = Path(self.folder, name, "events.jsonl")
        deadline = time.monotonic() + 100
        while time.monotonic() < deadline:
            self.assertIsNone(process.poll())
            if events.exists() and events.read_text().count('"kind":"step"') >= steps:
                return
            time.sleep(0.01)
        self.fail("no steps")

    def kill(self, process):
        """All of the job: the launcher and its workers."""
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    def report_of_the_dead(self, name):
        """Workers end a moment after the launcher."""
        deadline = time.monotonic() + 60
        while True:
            report = self.run_json("report", name)
            if report["state"] != "running" or time.monotonic() > deadline:
                return report
            time.sleep(0.05)

    def start(self, name, *words):
        process = subprocess.Popen([TRIREME, "train", *SMALL, f"--observe.run_dir={name}", *words], cwd=self.folder,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(lambda: process.poll() is None and self.kill(process))
        return process

    def test_of_a_run_that_goes_on_is_killed_and_resumed(self):
        process = self.start("run", "--train.steps=1000000", "--checkpoint.every=5", "--checkpoint.keep=2")
        self.wait_for_steps(process, "run", 40)
        going = self.run_json("report", "run")
        self.assertEqual(going["state"], "running")
        self.assertGreaterEqual(going["step"], 40)
        self.assertEqual(going["steps"], 1000000)
        self.assertIn("Running.", Path(self.folder, "run", "report.html").read_text())
        self.kill(process)
        killed = self.report_of_the_dead("run")
        self.assertEqual(killed["state"], "ended")
        self.assertGreaterEqual(killed["step"], going["step"])
        page = Path(self.folder, "run", "report.html").read_text()
        self.assertIn("</html>", page)
        kept = list(Path(self.folder, "run", "checkpoints").glob("step-" + "[0-9]" * 6))
        self.assertEqual(page.count("<td>step-"), len(kept))
        self.assertIn("removed since", page)
        newest = max(int(path.name.split("-")[1]) for path in kept)
        self.run_json("train", "--resume", "run", f"--train.steps={newest + 10}", "--nproc", "1")
        resumed = self.run_json("report", "run", "--out", "page.html")
        self.assertEqual((resumed["state"], resumed["parts"]), ("finished", 2))
        self.assertGreaterEqual(resumed["seconds"], killed["seconds"])
        # The page that the run has made itself is the same one.
        self.assertEqual(Path(self.folder, "page.html").read_text(), Path(self.folder, "run", "report.html").read_text())

    def test_of_a_run_from_its_beginning(self):
        self.run_json("train", *SMALL, "--train.steps=3")
        done = run("report", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("3 steps of 256 tokens on 1 worker; held-out loss", done.stdout)
        page = Path(self.folder, "runs", "gpt2-tiny-1", "report.html").read_text()
        self.assertNotIn("<td>resume</td>", page)
        self.run_json("train", *SMALL, "--train.steps=3", "--observe.run_dir=runs/gpt2-tiny-1", "--checkpoint.resume=never")
        page = Path(self.folder, "runs", "gpt2-tiny-1", "report.html").read_text()
        self.assertIn("begins anew", page)

    def test_of_a_failure(self):
        done = run("train", *SMALL, "--train.steps=50", "--optimizer.lr=1000", "--optimizer.kind=sgd",
                   "--observe.run_dir=run", cwd=self.folder)
        self.assertNotEqual(done.returncode, 0)
        self.assertEqual(self.run_json("report", "run")["state"], "failed")
        events = [json.loads(line) for line in Path(self.folder, "run", "events.jsonl").read_text().splitlines()]
        self.assertIn("finite", events[-1]["values"]["reason"])

    def test_of_what_is_no_run(self):
        for folder, said in (("nowhere", "there is no folder nowhere"), (".", "it has no events.jsonl")):
            done = run("report", folder, cwd=self.folder)
            self.assertEqual(done.returncode, 2)
            self.assertIn(said, done.stderr)
            self.assertIn("runs/default-1", done.stderr)


if __name__ == "__main__":
    unittest.main()
