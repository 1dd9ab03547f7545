#!/usr/bin/env python3
# ctest: slow timeout=600
"""A layer that is too large for what one worker may allocate trains on two, with tensor parallelism; and what a worker
says that gets no more memory."""
import unittest

from layouts import MIB, LayoutTest, run

SMALL = ["--model", "gpt2-tiny", "--model.layers=2", "--model.hidden=32", "--model.heads=4", "--model.seq=16",
         "--train.global_batch=8", "--train.micro_batch=2", "--data.generated_size=20000", "--optimizer.schedule=constant",
         "--optimizer.warmup_steps=0"]


class Memory(LayoutTest):
    SMALL = SMALL

    # One block of 18 million parameters, whose sums over 32 micro-batches need six copies of the gradients: 481 MiB with
    # the weights on one worker. Each of two has half of that, and at a time some tensors more: gradients on their way
    # to their sums, tensors that are saved. 400 MiB may be taken, beside what a worker takes without a model.
    def test_trains_a_layer_that_one_worker_cannot_hold(self):
        model = ["--model", "gpt2-tiny", "--model.layers=1", "--model.hidden=512", "--model.ffn=16384",
                 "--model.heads=8", "--model.seq=16", "--train.global_batch=32", "--train.micro_batch=1",
                 "--train.leaves=32", "--optimizer.kind=sgd", "--optimizer.momentum=0", "--data.generated_size=20000",
                 "--train.steps=1", "--observe.tensorboard=false", "--observe.report=false", "--parallel.dp=1",
                 "--train.eval_every=0", "--checkpoint.async=false"]
        limited = self.limited_to(400 * MIB)
        whole = run("train", *model, "--parallel.tp=1", cwd=self.folder, **limited)
        self.assertEqual(whole.returncode, 1, whole.stdout + whole.stderr)
        self.assertRegex(whole.stderr, r"error: this worker is out of memory: the system did not give \S+ \S+ more\n"
                                       r".*parallel\.tp")
        cut = run("train", *model, "--parallel.tp=2", "--json", cwd=self.folder, **limited)
        self.assertEqual(cut.returncode, 0, cut.stdout + cut.stderr)

    # GPipe keeps all 64 micro-batches, some MiB each.
    def test_a_stage_without_memory_says_where_it_was(self):
        words = ["--model", "gpt2-tiny", "--model.layers=4", "--model.hidden=128", "--model.heads=4", "--model.seq=128",
                 "--train.global_batch=256", "--train.micro_batch=4", "--data.generated_size=200000", "--train.steps=1",
                 "--parallel.dp=1", "--parallel.pp=2", "--parallel.schedule=gpipe", "--train.eval_every=0"]
        done = run("train", *words, cwd=self.folder, **self.limited_to(200 * MIB))
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertRegex(done.stderr, r"error: rank \d of the pipeline, step 0, Forward stage \d micro-batch \d+: this worker "
                                      r"is out of memory: the system did not give \S+ \S+ more\n.*train\.recompute")


if __name__ == "__main__":
    unittest.main()
