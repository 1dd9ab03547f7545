#!/usr/bin/env python3
# ctest: timeout=200
"""What of a text is held out: windows of all of it, the same ones after a resume, and runs of before go on as they were."""
import json
import random
import re
import unittest
from pathlib import Path

from layouts import LayoutTest, run

SMALL = ["--model", "gpt2-tiny", "--model.layers=1", "--model.hidden=32", "--model.heads=2", "--model.seq=16",
         "--train.global_batch=16", "--train.micro_batch=8", "--optimizer.lr=1e-2", "--nproc", "1"]


class HeldOut(LayoutTest):
    SMALL = SMALL

    def setUp(self):
        super().setUp()
        # The last twentieth, which is as much as is held out, has other letters than the rest.
        dice = random.Random(1)
        text = "".join(dice.choice("abcd") for _ in range(19000)) + "".join(dice.choice("wxyz") for _ in range(1000))
        Path(self.folder, "my.txt").write_text(text)

    def train(self, *words):
        return self.run_json("train", *SMALL, "--data.path=my.txt", *words)

    def test_the_loss_is_that_of_the_whole_text(self):
        report = self.train("--train.steps=60")
        self.assertLess(report["held_out_loss"], 1.3 * report["final_loss"])
        at_the_end = self.train("--train.steps=60", "--data.split=end")
        self.assertGreater(at_the_end["held_out_loss"], 2 * at_the_end["final_loss"])

    def test_a_resumed_run_holds_out_the_same(self):
        straight = self.train("--train.steps=6", "--observe.run_dir=straight")
        self.train("--train.steps=3", "--observe.run_dir=again")
        resumed = self.run_json("train", "--resume", "again", "--train.steps=6", "--nproc", "1")
        self.assertEqual(resumed["held_out_loss"], straight["held_out_loss"])
        self.assert_same_bits("straight", "again")

    def test_a_run_from_before_the_key_goes_on_with_the_end_held_out(self):
        straight = self.train("--train.steps=6", "--observe.run_dir=straight", "--data.split=end")
        self.train("--train.steps=3", "--observe.run_dir=old", "--data.split=end")
        config = Path(self.folder, "old", "config.toml")
        config.write_text(re.sub(r"(?m)^split = .*\n", "", config.read_text(), count=1))
        self.assertNotIn('split = "end"', config.read_text())
        resumed = self.run_json("train", "--resume", "old", "--train.steps=6", "--nproc", "1")
        self.assertEqual(resumed["held_out_loss"], straight["held_out_loss"])
        self.assert_same_bits("straight", "old")
        self.assertIn('split = "end"', config.read_text())

    def test_another_split_is_told(self):
        self.train("--train.steps=3", "--observe.run_dir=run")
        done = run("train", *SMALL, "--data.path=my.txt", "--observe.run_dir=run", "--train.steps=4", "--data.split=end",
                   cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("other samples are held out", done.stderr)
        self.assertIn("--data.split=random", done.stderr)
        events = [json.loads(line) for line in Path(self.folder, "run", "events.jsonl").read_text().splitlines()]
        self.assertTrue(any(event["kind"] == "warning" for event in events))
        same = run("train", "--resume", "run", "--train.steps=5", "--nproc", "1", cwd=self.folder)
        self.assertNotIn("held out", same.stderr)


if __name__ == "__main__":
    unittest.main()
