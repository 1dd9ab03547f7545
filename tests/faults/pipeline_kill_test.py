"""A worker of a pipeline dies in the midst of a step: the others say where they were and end, and training goes on from
the last checkpoint with the bits of the undisturbed run."""
# ctest: timeout=300

import os
import random
import re
import signal
import subprocess
import time
import unittest

from train_program import SLOWLY, TINY, TrainTest, checkpoints, events, is_gone, start, wait_for, workers_of

# Six layers to cut between. Later words win.
SETTINGS = ["--model.layers=4", "--train.global_batch=12", "--train.leaves=12", "--train.steps=9",
            "--checkpoint.every=3"]
DEADLINE_S = 15  # from a worker's death to the end of the job


def words_of(layout):
    """dp=2,pp=2 as keys."""
    return [f"--parallel.{word}" for word in layout.split(",")]


def stopped_among(pids):
    """Those that have SIGSTOP."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/stat") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] == "T":
                    found.append(pid)
        except OSError:
            pass
    return found


class PipelineKillTest(TrainTest):
    def setUp(self):
        super().setUp()
        self.train("calm", *SETTINGS, workers=1)

    def begin(self, name, layout, *more, **variables):
        """Starts a run in its folder, or goes on with it."""
        has_begun = os.path.exists(self.path(name, "config.toml"))
        arguments = ["--resume", self.path(name)]
        if not has_begun:
            arguments = [*TINY, *SETTINGS, f"--observe.run_dir={self.path(name)}"]
        return start(["train", *arguments, *words_of(layout), *more], self.folder, **variables)

    def end_of(self, process, workers):
        """What it wrote to standard error. Fails where somebody hangs."""
        try:
            _, errors = process.communicate(timeout=DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            raise AssertionError(f"the job did not end within {DEADLINE_S} s of a worker's death") from None
        wait_for(lambda: all(is_gone(pid) for pid in workers), 5, "the workers' end")
        return errors

    def assert_ends_calmly(self, name, layout):
        out, errors = self.begin(name, layout).communicate(timeout=60)
        self.assertIn("Done:", out, errors)
        self.assert_same_bits("calm", name)


class Words(PipelineKillTest):
    """The victim stops, so that the others wait for it inside the step; then it is killed."""

    def test_a_save_under_way_holds_nobody(self):
        # Rank 0 is writing step 3 in the background and waits for the share of a worker that dies.
        process = self.begin("run", "dp=1,pp=2", TRIREME_FAULT="rank=1,point=checkpoint.before_record,kind=kill")
        _, errors = process.communicate(timeout=60)
        self.assertNotIn("stopped by the launcher", errors)
        self.assertRegex(errors, r"rank 0 of the pipeline, step \d, .*: rank 1 \(.*\) died")

    def kill_inside_step_five(self, layout, victim):
        process = self.begin("run", layout, "--checkpoint.async=false",
                             TRIREME_FAULT=f"rank={victim},step=5,point=train.step,kind=stop")
        wait_for(lambda: stopped_among(workers_of(process)), 30, "step 5 of the victim")
        workers = workers_of(process)
        pid = stopped_among(workers)[0]
        time.sleep(1)  # the others come to where they need it; their patience is several seconds
        os.kill(pid, signal.SIGKILL)
        errors = self.end_of(process, workers)
        self.assertNotEqual(process.returncode, 0)
        self.assertIn(f"rank {victim} (pid {pid}) was killed by SIGKILL", errors)
        self.assertNotIn("stopped by the launcher", errors)  # they ended by themselves
        self.assertEqual(checkpoints(self.path("run"))[0], 3)
        place = r"rank (\d) of the pipeline, step 5, (\w+) stage (\d) micro-batch (\d+)"
        named = sorted(re.findall(rf"{place}.*: rank {victim} \(host \S+, pid {pid}\) died", errors))
        survivors = [line for line in errors.splitlines() if "of the pipeline" in line]
        for line in survivors:  # also of those that were at work without a stage, such as the optimizer's
            self.assertRegex(line, rf"rank \d of the pipeline, step 5, \w+.*: rank {victim} \(host \S+, pid {pid}\) died")
        self.assertEqual(len(survivors), len(workers) - 1, errors)
        return named

    def test_of_the_first_stage(self):
        places = self.kill_inside_step_five("dp=1,pp=2,schedule=zb-h1", victim=1)
        self.assertEqual(places, [("0", "BackwardInput", "0", "0")])
        self.assert_ends_calmly("run", "dp=3,pp=1")

    def test_of_the_last_stage(self):
        places = self.kill_inside_step_five("dp=1,pp=2", victim=0)
        self.assertEqual(places, [("1", "Forward", "1", "0")])
        self.assert_ends_calmly("run", "dp=1,pp=2")

    def test_of_a_whole_pipeline(self):
        places = self.kill_inside_step_five("dp=1,pp=4,schedule=gpipe", victim=1)
        self.assertEqual(places, [("0", "Backward", "0", "0"), ("2", "Forward", "2", "0"), ("3", "Forward", "3", "0")])
        self.assert_ends_calmly("run", "dp=1,pp=2,schedule=zb-v")

    def test_of_other_replicas(self):
        # Rank 3 is the second stage of the second replica. The first one comes to its sums, which have no stage.
        places = self.kill_inside_step_five("dp=2,pp=2", victim=3)
        self.assertIn(("0", "Backward", "0", "6"), places)
        self.assert_ends_calmly("run", "dp=2,pp=2")


class Moments(PipelineKillTest):
    def kill_once(self, name, draw, layout):
        """At a random moment of one of the steps to come."""
        def num_steps():
            return len(events(self.path(name), "step"))

        last = num_steps() + draw.randint(1, 3)
        process = self.begin(name, layout, "--train.log_every=1", TRIREME_FAULT=SLOWLY)
        wait_for(lambda: num_steps() >= last or process.poll() is not None, 60, f"{last} steps")
        workers = workers_of(process)
        time.sleep(draw.uniform(0, 0.08))
        try:
            if workers:
                os.kill(draw.choice(workers), signal.SIGKILL)
        except ProcessLookupError:
            pass  # it had finished
        errors = self.end_of(process, workers)
        if process.returncode != 0:
            self.assertIn("was killed by SIGKILL", errors)
        return f"{layout} at step {checkpoints(self.path(name))[:1]}"

    def test_killed_at_random_moments(self):
        layouts = ["dp=1,pp=2,schedule=zb-h1", "dp=1,pp=3,schedule=zb-v", "dp=2,pp=2,schedule=1f1b",
                   "dp=1,pp=4,schedule=gpipe"]
        for seed in range(2):
            draw = random.Random(seed)
            name = f"run-{seed}"
            story = [self.kill_once(name, draw, draw.choice(layouts)) for _ in range(2)]
            with self.subTest(seed=seed, story=story):
                self.assert_ends_calmly(name, draw.choice(layouts))


if __name__ == "__main__":
    unittest.main()
