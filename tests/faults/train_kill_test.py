"""Training that is killed, stopped, or finds damage, NaN or a full disk: nothing committed is lost, and the bits are
those of the undisturbed run."""
# ctest: timeout=300

import json
import os
import re
import signal
import time
import unittest

from train_program import (KillTest, SLOWLY, STEPS, TINY, TrainTest, checkpoints, events, start, wait_for, workers_of)


class Kill(KillTest):
    def test_killed_at_random_moments(self):
        for seed in range(3):
            self.chain(seed, 2)


class Stop(TrainTest):
    def stop(self, name, victim_of, steps=200, by=signal.SIGTERM):
        arguments = [*TINY, f"--train.steps={steps}", "--checkpoint.every=50", f"--observe.run_dir={self.path(name)}"]
        process = start(["train", *arguments, "--nproc", "2"], self.folder, TRIREME_FAULT=SLOWLY)
        wait_for(lambda: events(self.path(name), "step"), 20, "the first step")
        time.sleep(0.3)
        asked = time.monotonic()
        os.kill(victim_of(process), by)
        out, err = process.communicate(timeout=30)
        self.assertLess(time.monotonic() - asked, 10)
        self.assertEqual(process.returncode, 0, out + err)
        self.assertIn("Stopped at step", out)
        self.assertIn("--resume", out)
        step = int(re.search(r"Stopped at step (\d+)", out).group(1))
        self.assertEqual(checkpoints(self.path(name))[0], step)
        self.assertEqual(events(self.path(name))[-1]["kind"], "stop")
        return step

    def test_sigterm_saves_and_resumes_with_the_same_bits(self):
        for name, victim_of in (("launcher", lambda process: process.pid),
                                ("worker", lambda process: workers_of(process)[1])):
            step = self.stop(name, victim_of)
            self.assertLess(step, 200)
            end = step + 4
            self.resume(name, 3, f"--train.steps={end}")
            self.train("calm-" + name, f"--train.steps={end}", workers=1)
            self.assert_same_bits("calm-" + name, name)
            self.assertEqual([event["step"] for event in events(self.path(name), "resume")], [step])

    def test_ctrl_c_saves_and_stops(self):
        self.assertLess(self.stop("run", lambda process: process.pid, by=signal.SIGINT), 200)

    def test_a_damaged_checkpoint_is_set_aside(self):
        settings = ["--checkpoint.every=3", "--checkpoint.keep=3"]
        self.train("run", "--train.steps=9", *settings)
        self.assertEqual(checkpoints(self.path("run")), [9, 6, 3])
        newest = self.path("run", "checkpoints", "step-000009")
        file = next(name for name in sorted(os.listdir(newest)) if name.startswith("weights-"))
        with open(os.path.join(newest, file), "r+b") as weights:
            weights.seek(-5, os.SEEK_END)
            byte = weights.read(1)
            weights.seek(-5, os.SEEK_END)
            weights.write(bytes([byte[0] ^ 4]))
        result = self.resume("run", 1, "--train.steps=12")
        self.assertRegex(result.stderr,
                         rf"checkpoint step-000009 is damaged: {file}, byte [\d,]+ \([\w.]+.*\)\. "
                         r"Using step-000006 instead; the damaged one is kept as step-000009\.bad")
        self.assertTrue(os.path.isdir(newest + ".bad"))
        self.train("calm", "--train.steps=12", *settings, workers=1)
        self.assert_same_bits("calm", "run")

    def test_a_run_that_began_anew_or_elsewhere_is_resumed_where_it_is(self):
        self.train("first", "--train.steps=3")
        self.train("anew", "--train.steps=6", "--checkpoint.resume=never")
        self.train("elsewhere", "--train.steps=6",
                   "--checkpoint.resume=" + self.path("first", "checkpoints", "step-000003"))
        for name in ("anew", "elsewhere"):
            self.assertIn("(step 6)", self.resume(name, 1, "--train.steps=8").stdout)
        self.assert_same_bits("anew", "elsewhere")

    def test_all_are_damaged(self):
        self.train("run", "--train.steps=3")
        os.truncate(self.path("run", "checkpoints", "step-000003", "manifest.json"), 40)
        result = self.resume("run", 1, "--train.steps=3")
        self.assertIn("checkpoint step-000003 is damaged: manifest.json", result.stderr)
        self.assertIn("There is no good one before it", result.stderr)
        self.train("calm", "--train.steps=3")
        self.assert_same_bits("calm", "run")


class Numbers(TrainTest):
    NAN = "rank=1,step=4,point=train.gradient,kind=errno:EIO"

    def test_stop_names_rank_step_and_parameter(self):
        result = self.train("run", "--train.steps=8", "--checkpoint.every=2", ends_with=1, TRIREME_FAULT=self.NAN)
        self.assertRegex(result.stderr,
                         r"step 4: the gradient of [\w.]+ is not finite, first on rank 1 in micro-batch 12")
        self.assertEqual(result.stderr.count("train.on_nan"), 1, "one worker speaks for all")
        self.assertEqual(checkpoints(self.path("run")), [4, 2])

    def test_skip_goes_on_and_counts(self):
        result = self.train("run", "--train.steps=8", "--train.on_nan=skip", "--json", TRIREME_FAULT=self.NAN)
        self.assertEqual(json.loads(result.stdout)["steps_skipped"], 1)
        self.assertEqual(len(re.findall("first on rank 1", result.stderr)), 1, result.stderr)
        self.assertIn("skipped", result.stderr)
        skipped = [event["step"] for event in events(self.path("run"), "step") if event["values"]["skipped"]]
        self.assertEqual(skipped, [5])
        other = self.train("other", "--train.steps=8", "--train.on_nan=skip", workers=2, TRIREME_FAULT=self.NAN)
        self.assertIn("1 step skipped", other.stdout)
        self.assert_same_bits("run", "other")

    def test_rollback_goes_back_and_finishes(self):
        result = self.train("run", "--train.steps=8", "--train.on_nan=rollback", "--checkpoint.every=2",
                            TRIREME_FAULT=self.NAN + ",count=1")
        self.assertIn("went back to", result.stderr)
        self.assertIn("step-000004", result.stderr)
        self.assertEqual(checkpoints(self.path("run"))[0], 8)

    def test_rollback_gives_up(self):
        result = self.train("run", "--train.steps=8", "--train.on_nan=rollback", "--checkpoint.every=2", ends_with=1,
                            TRIREME_FAULT=self.NAN)
        self.assertIn("gave up after going back 10 times", result.stderr)
        self.assertEqual(result.stderr.count("gave up"), 1, "one worker speaks for all")
        self.assertIn("optimizer.lr", result.stderr)

    def test_rollback_before_the_first_checkpoint_goes_back_to_the_start(self):
        result = self.train("run", "--train.steps=8", "--train.on_nan=rollback", TRIREME_FAULT=self.NAN + ",count=1")
        self.assertRegex(result.stderr, "went back to .*step-000000")
        self.assertEqual(checkpoints(self.path("run")), [8, 0])


class FullDisk(TrainTest):
    def test_a_save_that_fails_is_told_and_the_next_one_works(self):
        self.train("calm", "--train.steps=9", workers=1)
        for rank in (0, 1):
            name = f"run-{rank}"
            began = time.monotonic()
            # The save of step 3 happens in the step that counts as 2.
            result = self.train(name, "--train.steps=9", "--checkpoint.every=3", "--checkpoint.async=false",
                                TRIREME_FAULT=f"rank={rank},step=2,point=file.write,kind=errno:ENOSPC")
            self.assertLess(time.monotonic() - began, 20)
            self.assertIn("warning:", result.stderr)
            self.assertIn("No space left on device" if rank == 0 else "its disk is full", result.stderr)
            self.assertEqual(checkpoints(self.path(name)), [9, 6])
            self.assert_same_bits("calm", name)

    def test_a_last_save_that_fails_is_no_success(self):
        # Not beside training: the save of step 3 could still be under way in step 5.
        result = self.train("run", "--train.steps=6", "--checkpoint.every=3", "--checkpoint.async=false", ends_with=1,
                            TRIREME_FAULT="rank=1,step=5,point=file.write,kind=errno:ENOSPC")
        self.assertIn("the state of step 6 was not saved", result.stderr)
        self.assertIn("--resume", result.stderr)
        self.assertEqual(checkpoints(self.path("run")), [3])
        self.resume("run", 1)
        self.train("calm", "--train.steps=6", workers=1)
        self.assert_same_bits("calm", "run")

    def test_in_the_background_too(self):
        result = self.train("run", "--train.steps=12", "--checkpoint.every=3",
                            TRIREME_FAULT="rank=1,point=file.write,kind=errno:ENOSPC,count=1;"
                                          "point=train.step,kind=delay:20")
        self.assertIn("step 3 was not saved: worker 1 could not write its share: cannot save to", result.stderr)
        self.assertIn("No space left on device", result.stderr)
        self.assertEqual(checkpoints(self.path("run")), [12, 9, 6])


if __name__ == "__main__":
    unittest.main()
