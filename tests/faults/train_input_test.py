"""Bad input to `trireme train`, through the real program: a message with the thing, its value and the fix, no hang."""
# ctest: timeout=300

import os
import re
import struct
import unittest

from train_program import TINY, TrainTest, checkpoints, run, start, wait_for, events, SLOWLY


class Input(TrainTest):
    def refuse(self, arguments, *parts, tiny=True, workers=2):
        """Every line of the output belongs to a message, and `parts` are in it."""
        first = [*TINY, "--train.steps=2"] if tiny else []
        result = run("train", *first, "--nproc", str(workers), *arguments, cwd=self.folder, timeout=30)
        text = result.stderr
        self.assertNotEqual(result.returncode, 0, text)
        self.assertTrue(text.lstrip("\n").startswith("error: "), text)
        for part in parts:
            self.assertIn(part, text)
        for word in ("frame #", "terminate called", "c10::", "Exception raised", "std::", "what():", "backtrace"):
            self.assertNotIn(word, text)
        message = text.split("\n")[0]
        self.assertEqual(text.count(message), 1, "one worker speaks for all:\n" + text)
        self.assertNotIn(" step ", result.stdout)
        return result

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)
        return self.path(name)


class Config(Input):
    def test_batch_that_does_not_divide(self):
        self.refuse(["--train.global_batch=25"], "train.global_batch = 25", "dp = 2",
                    "nearest train.global_batch: 24 or 48")
        self.refuse(["--train.micro_batch=5"], "train.global_batch = 24", "micro-batches of 5", "command line")

    def test_world_that_the_config_cannot_hold(self):
        self.refuse([], "train.global_batch = 24", "dp = 5", "dp = 1, 2, 3, 4, 6 or 8 works as it is", workers=5)
        self.refuse(["--parallel.dp=3"], "parallel.dp = 3", "needs 3 workers, but there are 2", "--nproc 3")

    def test_unknown_key(self):
        self.refuse(["--train.globl_batch=8"], "train.globl_batch", "train.global_batch")
        self.refuse(["--model", "gpt2-tny"], "gpt2-tny", "gpt2-tiny", tiny=False)
        config = self.write("bad.toml", b"[train]\nstep = 5\n")
        self.refuse([config], "bad.toml:2", "train.step", "train.steps", tiny=False)

    def test_wrong_type(self):
        self.refuse(["--train.steps=many"], "train.steps", "many")
        self.refuse(["--optimizer.lr=fast"], "optimizer.lr", "fast")
        config = self.write("bad.toml", b"[train]\nsteps = \"5\"\n")
        self.refuse([config], "bad.toml:2", "train.steps", tiny=False)
        self.refuse([self.path("none.toml")], "none.toml", tiny=False)

    def test_what_this_version_cannot_do(self):
        self.refuse(["--parallel.cp=2"], "parallel.cp")


class Data(Input):
    def test_no_such_file(self):
        self.refuse(["--data.path=" + self.path("none.txt")], "none.txt", "No such file", "data.path")
        text = "--data.path=" + self.write("text.txt", b"hello world " * 200)
        self.refuse([text, "--data.tokenizer=" + self.path("none.json")], "none.json", "check data.tokenizer")
        self.refuse(["--data.tokenizer=" + self.path("none.json")], "data.tokenizer", "is for text", "data.path")

    def test_empty_file(self):
        self.refuse(["--data.path=" + self.write("empty.txt", b"")], "empty.txt")
        self.refuse(["--data.path=" + self.write("empty.bin", b"")], "empty.bin")
        self.refuse(["--data.path=" + self.write("short.txt", b"ab")], "short.txt", "model.seq")

    def test_a_target_without_held_out_data(self):
        text = self.write("text.txt", b"hello world " * 200)
        self.refuse(["--data.path=" + text, "--data.held_out=0", "--train.target_loss=0.5"], "train.target_loss = 0.5",
                    "data.held_out")

    def test_token_beyond_the_vocabulary(self):
        tokens = [1, 2, 3, 300, 5] * 200
        path = self.write("tokens.bin", struct.pack(f"<{len(tokens)}H", *tokens))
        self.refuse(["--data.path=" + path], "tokens.bin", "token 3 is id 300", "model.vocab = 256", "at least 301")

    def test_images_for_a_language_model(self):
        self.refuse(["--data.kind=images", "--data.path=" + self.folder], "data.kind", "model.kind")


class Folders(Input):
    def test_checkpoint_of_another_model(self):
        self.train("run", "--train.steps=2")
        for workers in (1, 2):
            self.refuse([f"--observe.run_dir={self.path('run')}", "--model.hidden=32"], "is of another model",
                        "embedding", "[256, 16]", "[256, 32]", "tensors fit", workers=workers)
        self.refuse([f"--observe.run_dir={self.path('run')}", "--model.layers=2"], "is missing in it",
                    "layers.1.")
        self.refuse([f"--observe.run_dir={self.path('run')}", "--optimizer.kind=sgd"], "is of another optimizer",
                    "sgd.momentum.")
        self.assertEqual(checkpoints(self.path("run")), [2])
        self.resume("run", 2, "--train.steps=3")  # its own config is still there
        self.assertEqual(checkpoints(self.path("run")), [3, 2])

    def test_no_checkpoint_there(self):
        self.refuse(["--checkpoint.resume=" + self.path("none")], "none")
        self.refuse(["--resume", self.path("none")], "is no run folder", "config.toml", tiny=False)

    def test_a_file_in_the_way(self):
        path = self.write("way", b"")
        self.refuse([f"--observe.run_dir={path}"], path, "--observe.run_dir")
        self.refuse([f"--observe.run_dir={path}/run"], path, "--observe.run_dir")

    def test_start_from_a_wrong_file(self):
        self.refuse(["--checkpoint.start_from=" + self.path("none.safetensors")], "checkpoint.start_from",
                    "none.safetensors", "No such file")
        self.refuse(["--checkpoint.start_from=" + self.write("text.safetensors", b"no tensors here at all")],
                    "text.safetensors")
        self.train("run", "--train.steps=1", "--model.hidden=32")
        exported = self.path("other.safetensors")
        done = run("checkpoint", "export", self.path("run"), "--to", exported, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.refuse(["--checkpoint.start_from=" + exported], "checkpoint.start_from", exported, "wte.weight", "256, 32",
                    "256, 16")
        saved = self.path("run", "checkpoints", "step-000001")
        self.refuse(["--checkpoint.start_from=" + saved], "has no model.safetensors", "--checkpoint.resume " + saved)
        self.refuse(["--checkpoint.start_from=" + self.folder], "has no model.safetensors", "name a file")

    def test_start_from_a_folder_of_hugging_face(self):
        self.train("run", "--train.steps=1")
        os.mkdir(self.path("exported"))
        file = self.path("exported", "model.safetensors")
        done = run("checkpoint", "export", self.path("run"), "--to", file, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)
        for name, source in (("file", file), ("folder", self.path("exported"))):
            self.train(name, "--train.steps=1", "--checkpoint.start_from=" + source)
        self.assert_same_bits("file", "folder")

    def test_a_folder_in_use(self):
        folder = self.path("run")
        process = start(["train", *TINY, "--train.steps=500", f"--observe.run_dir={folder}", "--nproc", "1"],
                        self.folder, TRIREME_FAULT=SLOWLY)
        try:
            wait_for(lambda: events(folder, "step"), 20, "the first step")
            self.refuse([f"--observe.run_dir={folder}"], "is in use by pid", "--observe.run_dir")
            self.assertIsNone(process.poll(), "the job whose folder it is goes on")
        finally:
            process.kill()
            process.communicate()


if __name__ == "__main__":
    unittest.main()
