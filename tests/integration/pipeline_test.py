#!/usr/bin/env python3
# ctest: timeout=300
"""Pipelines in real processes: every layout trains the same bits, goes on with another's checkpoints, and refuses what
cannot be before anything runs."""
import json
import os
import unittest

from layouts import LayoutTest, run

# Four layers to cut between: embedding, two blocks, output. Its weights are tied, so first and last stage share one.
SMALL = ["--model", "gpt2-tiny", "--model.layers=2", "--model.hidden=32", "--model.heads=4", "--model.seq=16",
         "--train.global_batch=8", "--train.micro_batch=2", "--data.generated_size=20000",
         "--optimizer.schedule=constant", "--optimizer.warmup_steps=0", "--observe.tensorboard=false"]
STEPS = 6



class PipelineTest(LayoutTest):
    SMALL = SMALL
    STEPS = STEPS

    def files(self, run_name, start):
        newest = os.path.join(self.folder, run_name, "checkpoints", f"step-{STEPS:06}")
        return sorted(name for name in os.listdir(newest) if name.startswith(start))


class Layouts(PipelineTest):
    def setUp(self):
        super().setUp()
        self.whole = self.train("whole", "dp=1")

    def test_train_the_same_bits(self):
        for number, (layout, more, name) in enumerate([
                ("dp=1,pp=2", [], "dp=1,pp=2,schedule=1f1b"),
                ("dp=1,pp=4,schedule=zb-h2", ["--train.recompute=full"], "dp=1,pp=4,schedule=zb-h2"),
                ("dp=2,pp=2,schedule=zb-v", ["--checkpoint.spread=false"], "dp=2,pp=2,schedule=zb-v"),
                ("dp=1,pp=2,interleave=2", ["--train.recompute=selective"], None),
                ("dp=1,pp=2,schedule=gpipe", ["--parallel.split=1,3"], "dp=1,pp=2,schedule=gpipe"),
                ("dp=1,pp=3,schedule=naive", ["--parallel.split=0-0,1-2,3-3"], "dp=1,pp=3,schedule=naive"),
                ("stages=2x1+1x1", [], "stages=2x1+1x1,pp=2,schedule=1f1b"),
                ("stages=1x1+2x1+1x1,schedule=zb-h1", ["--parallel.zero=1", "--checkpoint.spread=false"], None)]):
            with self.subTest(layout=layout, more=more):
                result = self.train(f"run-{number}", layout, *more)
                if name:
                    self.assertEqual(result["layout"], name)
                for key in ("final_loss", "held_out_loss", "held_out_accuracy", "parameters"):
                    self.assertEqual(result[key], self.whole[key], key)
                self.assertGreater(result["parts_ms"]["other stages"], 0)
                self.assert_same_bits("whole", f"run-{number}")
        self.assertEqual(self.whole["parts_ms"]["other stages"], 0)

    def test_only_the_first_and_the_last_stage_hold_the_data(self):
        with open(os.path.join(self.folder, "text.txt"), "w") as text:
            text.write("all the words that are learnt here. " * 200)
        more = ["--data.path=text.txt", "--data.cache=memory", "--parallel.split=0-0,1-2,3-3"]
        whole = self.train("words", "dp=1", *more[:2])
        for rank, reads in ((0, True), (1, False), (2, True)):
            done = run("train", *SMALL, *more, "--parallel.dp=1", "--parallel.pp=3", f"--train.steps={STEPS}",
                       f"--observe.run_dir=stages-{rank}", "--json", cwd=self.folder,
                       env={**os.environ, "TRIREME_FAULT": f"rank={rank},point=data.file.read,kind=errno:EIO"})
            if reads:
                self.assertIn("cannot read text.txt", done.stderr)
                continue
            self.assertEqual(done.returncode, 0, done.stderr)
            self.assertEqual(json.loads(done.stdout)["held_out_loss"], whole["held_out_loss"])
            self.assert_same_bits("words", f"stages-{rank}")

    def test_schedules_of_ones_own(self):
        def write(name, text):
            with open(os.path.join(self.folder, name), "w") as file:
                file.write(text)
            return name

        # No built-in order: two forward passes ahead, weight gradients of the first stage at the very end.
        own = write("own.csv", "0F0,0F1,0I0,0F2,0I1,0F3,0I2,0I3,0W0,0W1,0W2,0W3\n"
                               "1F0,1B0,1F1,1B1,1F2,1B2,1F3,1B3\n")
        # Three stages, of which rank 0 has the outer ones; with its messages.
        around = write("around.csv",
                       ",".join(f"0F{m},0SEND_F{m},2RECV_F{m},2F{m},2B{m},2SEND_B{m},0RECV_B{m},0B{m}"
                                for m in range(4)) + "\n" +
                       ",".join(f"1RECV_F{m},1F{m},1SEND_F{m},1RECV_B{m},1B{m},1SEND_B{m}" for m in range(4)) + "\n")
        written = ["schedule", "show", "--kind", "zb-v", "--stages", "2", "--microbatches", "4", "--csv", "zb-v.csv"]
        self.assertEqual(run(*written, "--messages", cwd=self.folder).returncode, 0)
        for file, more in [(own, []), (around, ["--train.recompute=full"]), ("zb-v.csv", []),
                           ("./own.csv", ["--parallel.dp=2", "--train.global_batch=16"])]:
            with self.subTest(file=file):
                name = f"run-{file.strip('./')}-{len(more)}"
                result = self.train(name, f"dp=1,pp=2,schedule={file}", *more)
                self.assertIn(f"schedule={file}", result["layout"])
                whole = "whole"
                if "--parallel.dp=2" in more:
                    whole = "whole-16"
                    self.train(whole, "dp=1", "--train.global_batch=16")
                self.assert_same_bits(whole, name)

    def test_go_on_in_each_other(self):
        for number, (first, then) in enumerate([("dp=1,pp=2", "dp=2,pp=1"),
                                                ("dp=1,pp=2,schedule=zb-v", "dp=1,pp=4,schedule=1f1b"),
                                                ("dp=2,pp=1", "dp=2,pp=2,schedule=zb-h1")]):
            with self.subTest(first=first, then=then):
                name = f"run-{number}"
                self.train(name, first, steps=STEPS // 2)
                self.assertEqual(self.resume(name, then)["steps"], STEPS)
                self.assert_same_bits("whole", name)

    def test_each_stage_is_written_by_those_who_hold_it(self):
        self.train("spread", "dp=2,pp=2")
        self.train("few", "dp=2,pp=2", "--checkpoint.spread=false")
        self.assertEqual(len(self.files("spread", "weights-")), 4)
        self.assertEqual(self.files("few", "weights-"), [f"weights-0000{i}-of-00002.safetensors" for i in range(2)])
        done = run("checkpoint", "verify", "few", cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assert_same_bits("spread", "few")

    def test_together_with_tensor_parallelism(self):
        self.train("tp", "dp=1,tp=2", steps=STEPS // 2)
        all_three = self.train("all", "dp=2,pp=2,tp=2,schedule=zb-h1", steps=STEPS // 2)
        self.assertEqual(all_three["layout"], "dp=2,pp=2,schedule=zb-h1,tp=2")
        self.assert_same_bits("tp", "all")  # pipelines and replicas change no bit of it
        resumed = self.resume("all", "dp=1,pp=1,tp=1")
        self.assertEqual(resumed["layout"], "dp=1")
        self.assertAlmostEqual(resumed["final_loss"], self.whole["final_loss"], delta=1e-5 * self.whole["final_loss"])


class Commands(PipelineTest):
    def test_verify_says_equal(self):
        for a, b in [("dp=1", "dp=1,pp=4,schedule=zb-h1"), ("dp=2", "dp=2,pp=2,schedule=pipedream-flush"),
                     ("dp=1,pp=2,schedule=zb-v", "dp=1,pp=2,schedule=interleaved"), ("dp=1,tp=2", "dp=1,pp=2,tp=2"),
                     ("dp=1,pp=2,split=1+3", "dp=1,pp=2,split=0-1+2-3")]:
            with self.subTest(a=a, b=b):
                verdict = self.run_json("verify", "--a", a, "--b", b, "--steps", "2", *SMALL)
                self.assertEqual(verdict["verdict"], "equal", verdict)

    def test_bench_compares_schedules(self):
        result = self.run_json("bench", "train", *SMALL, "--steps", "2", "--warmup", "1", "--repeats", "1",
                               "--layouts", "dp=1;dp=1,pp=2;dp=1,pp=2,schedule=zb-v")
        self.assertEqual([each["ranks"] for each in result["results"]], [1, 2, 2])
        self.assertIs(result["losses_agree"], True)

    def test_mistakes_cost_nothing(self):
        for words, answer in [
                (["pp=5"], "needs 5 stages, but the model has 4 layers"),
                (["pp=3", "schedule=zb-v"], "needs 6 stages, but the model has 4 layers"),
                (["pp=2", "split=3,3"], "split.*3,3"),
                (["pp=2", "split=1,2"], "the split 1,2 covers 3 of 4 layers"),
                (["pp=2", "split=4,0"], "'0' in the split 4,0 has no layers"),
                (["pp=2", "split=1,2,1"], "1,2,1.*3 stages"),
                (["pp=2", "split=two,two"], "two,two"),
                (["split=2,2"], r"parallel\.split.*parallel\.pp = 1"),
                (["pp=2", "schedule=zb-h3"], r'parallel\.schedule = "zb-h3".*\n.*did you mean "zb-h1"'),
                (["pp=2", "schedule=gpipe", "interleave=2"], r"parallel\.interleave = 2.*parallel\.schedule"),
                (["pp=2", "schedule=mine.csv"], "there is no file mine.csv")]:
            with self.subTest(words=words):
                done = run("train", *SMALL, "--parallel.dp=1", *(f"--parallel.{word}" for word in words),
                           cwd=self.folder)
                self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
                self.assertRegex(done.stderr, answer)
                self.assertEqual(done.stderr.count("error:"), 1)  # by the program, not by each worker
        done = run("train", *SMALL, "--parallel.pp=2", "--parallel.schedule=zb-h1", "--train.recompute=selective",
                   cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertRegex(done.stderr, r'train\.recompute = "selective".*\n.*set train\.recompute to full')
        done = run("train", *SMALL, "--parallel.pp=2", "--nproc", "3", cwd=self.folder)
        self.assertEqual(done.returncode, 2)
        self.assertIn("3 workers cannot be split by parallel.pp = 2", done.stderr)
        self.assertEqual(os.listdir(self.folder), [])


if __name__ == "__main__":
    unittest.main()
