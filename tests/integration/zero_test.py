#!/usr/bin/env python3
# ctest: timeout=300
"""ZeRO's stages in real processes: the same bits as stage 0, checkpoints that go on under any other stage and layout,
and less memory."""
import unittest

from layouts import MIB, LayoutTest, run

SMALL = ["--model", "gpt2-tiny", "--model.layers=2", "--model.hidden=32", "--model.heads=4", "--model.seq=16",
         "--train.global_batch=8", "--train.micro_batch=2", "--train.leaves=4", "--data.generated_size=20000",
         "--optimizer.schedule=constant", "--optimizer.warmup_steps=0", "--observe.tensorboard=false"]
STEPS = 6


class ZeroTest(LayoutTest):
    SMALL = SMALL
    STEPS = STEPS

    def test_stages_train_the_same_bits(self):
        whole = self.train("whole", "dp=2")
        for number, (layout, name) in enumerate([("dp=2,zero=1", "dp=2,zero=1"), ("dp=2,zero=2", "dp=2,zero=2"),
                                                 ("dp=2,zero=3", "dp=2,zero=3"),
                                                 ("dp=4,zero=3,zero_shards=2", "dp=4,zero=3"),
                                                 ("dp=2,pp=2,zero=3", "dp=2,pp=2,schedule=1f1b,zero=3")]):
            with self.subTest(layout=layout):
                result = self.train(f"run-{number}", layout)
                self.assertEqual(result["layout"], name)
                for key in ("final_loss", "held_out_loss", "held_out_accuracy", "parameters"):
                    self.assertEqual(result[key], whole[key], key)
                self.assert_same_bits("whole", f"run-{number}")

    def test_checkpoints_go_on_under_other_stages(self):
        self.train("whole", "dp=2")
        for number, (first, then) in enumerate([("dp=2,zero=3", "dp=1,zero=0"), ("dp=1", "dp=4,zero=3"),
                                                ("dp=4,zero=2", "dp=2,zero=3"),
                                                ("dp=2,zero=3", "dp=2,pp=2,zero=1")]):
            with self.subTest(first=first, then=then):
                name = f"run-{number}"
                self.train(name, first, steps=STEPS // 2)
                self.resume(name, then)
                self.assert_same_bits("whole", name)

    def test_verify_says_equal(self):
        verdict = self.run_json("verify", "--a", "dp=2", "--b", "dp=2,zero=3", "--steps", "2", *SMALL)
        self.assertEqual(verdict["verdict"], "equal", verdict)

    def test_refuses_what_cannot_be(self):
        for words, sentence in [
                (["--parallel.zero_shards=2"], "says who shares, but nobody does"),
                (["--parallel.zero=1", "--parallel.zero_keep"], "set parallel.zero = 3"),
                (["--parallel.zero=1", "--parallel.zero_accumulation=shares"], "set parallel.zero = 2"),
                (["--parallel.zero=3", "--parallel.dp=3", "--train.global_batch=12", "--train.leaves=6",
                  "--parallel.zero_shards=2"], "a power of two that divides parallel.dp"),
                (["--parallel.zero=4"], "parallel.zero"),
                (["--parallel.zero=3", "--parallel.dp=1", "--parallel.pp=2", "--parallel.schedule=zb-h1"],
                 "take 1f1b, or parallel.zero = 2")]:
            with self.subTest(words=words):
                done = run("train", *SMALL, *words, cwd=self.folder)
                self.assertNotEqual(done.returncode, 0)
                self.assertIn(sentence, done.stderr + done.stdout)

    # 50 million parameters: weights, gradients and moments are 800 MB a worker at stage 0, 100 MB shared by eight. What a
    # process may allocate for itself is limited to what it has without a model and a third of that.
    def test_trains_what_does_not_fit(self):
        model = ["--model", "gpt2-tiny", "--model.layers=16", "--model.hidden=512", "--model.heads=8", "--model.seq=16",
                 "--train.global_batch=8", "--train.micro_batch=1", "--train.leaves=8", "--data.generated_size=20000",
                 "--train.steps=2", "--observe.tensorboard=false", "--observe.report=false", "--parallel.dp=8",
                 "--train.eval_every=0", "--checkpoint.async=false"]
        limited = self.limited_to(800 * MIB // 3)
        whole = run("train", *model, "--parallel.zero=0", cwd=self.folder, **limited)
        self.assertNotEqual(whole.returncode, 0, whole.stdout)
        shared = run("train", *model, "--parallel.zero=3", "--json", cwd=self.folder, **limited)
        self.assertEqual(shared.returncode, 0, shared.stdout + shared.stderr)


if __name__ == "__main__":
    unittest.main()
