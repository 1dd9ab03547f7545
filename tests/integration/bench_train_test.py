"""`trireme bench train`: what it reports, what it refuses, and that layouts agree. No times are judged here."""
# ctest: timeout=300

import json
import os
import shutil
import subprocess
import tempfile
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")
FOLDER = tempfile.mkdtemp(prefix="trireme-bench-train-")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "SLURM_"))}
TINY = ["--model.layers=1", "--model.hidden=32", "--model.heads=2", "--model.seq=16", "--model.vocab=256",
        "--train.global_batch=4", "--train.micro_batch=1", "--steps", "2", "--warmup", "1", "--repeats", "1"]
FIELDS = {"layout", "tokens_per_second", "step_ms", "parts_ms", "loss", "peak_memory_bytes", "state_bytes",
          "reduced_bytes_per_step", "ranks", "global_batch", "ddp_tokens_per_second"}
PARTS = ["data", "forward", "backward", "exposed communication", "optimizer", "other"]


def tearDownModule():
    shutil.rmtree(FOLDER)


def run(*arguments, **variables):
    return subprocess.run([TRIREME, "bench", "train", *arguments], capture_output=True, text=True, timeout=240,
                          cwd=FOLDER, env={**ENVIRONMENT, **variables})


@unittest.skipUnless(os.path.exists(os.path.join(BIN, "trireme-tensor")), "built without libtorch")
class Report(unittest.TestCase):
    def report(self, *arguments, **variables):
        result = run("--json", *TINY, *arguments, **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        for each in [report, *report["results"], *report["precisions"]]:
            self.assertLessEqual(FIELDS, set(each))
            self.assertEqual(list(each["parts_ms"]), PARTS)
            for field in ["tokens_per_second", "step_ms", "loss", "peak_memory_bytes", "state_bytes"]:
                self.assertGreater(each[field], 0, field)
            tokens = each["global_batch"] * 16
            self.assertAlmostEqual(each["tokens_per_second"] * each["step_ms"] / 1000 / tokens, 1, 6)
        return report

    def test_usual_layouts_and_a_peer_that_is_not_there(self):
        report = self.report("--compare", "ddp")
        base, both = report["results"]
        self.assertEqual((base["ranks"], base["global_batch"]), (1, 2))
        self.assertEqual((both["ranks"], both["global_batch"], both["layout"]), (2, 4, "dp=2"))
        self.assertEqual(report["layout"], "dp=2")
        self.assertEqual(report["loss"], both["loss"])
        self.assertAlmostEqual(report["efficiency"], both["tokens_per_second"] / (2 * base["tokens_per_second"]), 6)
        self.assertEqual(base["reduced_bytes_per_step"], 0)
        self.assertGreater(both["reduced_bytes_per_step"], 0)
        self.assertIsNone(both["ddp_tokens_per_second"])
        self.assertIn("pip install torch", " ".join(report["notes"]))
        self.assertEqual(os.listdir(FOLDER), [])  # no run folder

    def test_layouts_have_equal_losses(self):
        report = self.report("--layouts", "dp=1;dp=2;dp=2,train.seed=2", "--repeats", "2")
        one, two, other = report["results"]
        self.assertEqual(one["loss"], two["loss"])
        self.assertNotEqual(one["loss"], other["loss"])
        self.assertIsNone(report["losses_agree"])  # nobody did the work of the last one
        self.assertTrue(all(each["loss_repeats"] and len(each["each_step_ms"]) == 2 for each in report["results"]))
        self.assertTrue(self.report("--layouts", "dp=1;dp=2")["losses_agree"])

    def test_bfloat16_halves_what_is_reduced(self):
        full, mixed, reduced = self.report("--precision-table")["precisions"]
        self.assertEqual([each["precision"] for each in [full, mixed, reduced]], ["float32", "bfloat16", "bfloat16"])
        self.assertEqual(mixed["reduced_bytes_per_step"], full["reduced_bytes_per_step"])
        self.assertAlmostEqual(reduced["reduced_bytes_per_step"] / full["reduced_bytes_per_step"], 0.5, 2)

    def test_text_and_chart(self):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "speed.svg")
            result = run(*TINY, "--layouts", "dp=1;dp=2", "--plot", path)
            self.assertEqual(result.returncode, 0, result.stderr)
            with open(path) as file:
                self.assertTrue(file.read().startswith("<svg"))
        for part in ["gpt2 of ", "layout", "tok/s", "exposed", "peak memory", "reduced a step", "dp=1", "dp=2",
                     "% of twice one worker (of the same batch in all)", "bit for bit"]:
            self.assertIn(part, result.stdout)
        self.assertNotIn("DDP", result.stdout)
        self.assertIn("bench train", result.stderr)  # progress


class Mistakes(unittest.TestCase):
    def check(self, arguments, *parts):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_mistakes(self):
        self.check(["--compare", "horovod"], "horovod", "known: ddp")
        self.check(["--layouts", "dp"], "\"dp\" has no value")
        self.check(["--layouts", ";"], "names no layout")
        self.check(["--layouts", "dp=3"], "train.global_batch = 16", "dp = 3")
        self.check(["--steps", "0"], "--steps")
        self.check(["--plot", "speed.png"], ".svg")
        self.check(["--plot", "/no/such/folder/speed.svg"], "/no/such/folder")
        self.check(["--train.setps=3"], "train.steps")


if __name__ == "__main__":
    unittest.main()
