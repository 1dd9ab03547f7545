"""`trireme bench train`: what it reports, what it refuses, and that layouts agree. No times are judged here."""
# ctest: timeout=600

import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")
SCRIPT = str(Path(__file__).resolve().parents[2] / "bench/gpu_training.py")
FOLDER = tempfile.mkdtemp(prefix="trireme-bench-train-")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "SLURM_"))}
TINY = ["--model.layers=1", "--model.hidden=32", "--model.heads=2", "--model.seq=16", "--model.vocab=256",
        "--train.global_batch=4", "--train.micro_batch=1", "--steps", "2", "--warmup", "1", "--repeats", "1"]
FIELDS = {"layout", "tokens_per_second", "step_ms", "parts_ms", "loss", "peak_memory_bytes", "state_bytes",
          "reduced_bytes_per_step", "ranks", "global_batch", "ddp_tokens_per_second"}
PARTS = ["data", "forward", "backward", "other stages", "exposed communication", "optimizer", "other"]


def tearDownModule():
    shutil.rmtree(FOLDER)


def run(*arguments, **variables):
    return subprocess.run([TRIREME, "bench", "train", *arguments], capture_output=True, text=True, timeout=400,
                          cwd=FOLDER, env={**ENVIRONMENT, **variables})


@unittest.skipUnless(os.path.exists(os.path.join(BIN, "trireme-tensor")), "built without libtorch")
class Report(unittest.TestCase):
    def report(self, *arguments, **variables):
        result = run("--json", *TINY, *arguments, **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        for each in [report, *report["results"]]:
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

    def precisions(self, *arguments, **variables):
        layouts = [f"dp=2,precision.compute={compute},precision.gradients={gradients}"
                   for compute, gradients in [("float32", "float32"), ("bfloat16", "float32"), ("bfloat16", "compute")]]
        return self.report("--layouts", ";".join(layouts), *arguments, **variables)["results"]

    def test_bfloat16_halves_what_is_reduced(self):
        full, mixed, reduced = self.precisions()
        self.assertEqual([each["precision"] for each in [full, mixed, reduced]], ["float32", "bfloat16", "bfloat16"])
        self.assertEqual(mixed["reduced_bytes_per_step"], full["reduced_bytes_per_step"])
        self.assertAlmostEqual(reduced["reduced_bytes_per_step"] / full["reduced_bytes_per_step"], 0.5, 2)
        self.assertEqual(full["sent_bytes_per_step"], 0)  # they read each other's memory

    def test_bfloat16_halves_weights_gradients_and_activations(self):
        sizes = ["--model.hidden=64", "--train.micro_batch=2"]  # one a worker: several are summed in float32
        full, mixed, reduced = self.precisions(*sizes, TRIREME_TRANSPORT="tcp")
        for part in ["weight_bytes", "activation_bytes"]:
            self.assertLess(mixed[part] / full[part], 0.6, part)
            self.assertEqual(mixed[part], reduced[part])
        self.assertEqual(mixed["gradient_bytes"], full["gradient_bytes"])
        self.assertAlmostEqual(reduced["gradient_bytes"] / full["gradient_bytes"], 0.5, 1)
        self.assertGreater(reduced["optimizer_bytes"], full["optimizer_bytes"])  # the float32 weights
        for each in [full, mixed, reduced]:
            self.assertEqual(each["weight_bytes"] + each["gradient_bytes"] + each["optimizer_bytes"],
                             each["state_bytes"])
            self.assertGreaterEqual(each["pass_peak_bytes"], each["activation_bytes"])
        self.assertAlmostEqual(reduced["sent_bytes_per_step"] / full["sent_bytes_per_step"], 0.5, 1)
        self.assertAlmostEqual(mixed["sent_bytes_per_step"] / full["sent_bytes_per_step"], 1, 1)

    def test_a_calibration_makes_a_cluster_that_simulates_and_corrects_itself(self):
        folder = tempfile.mkdtemp(prefix="trireme-calibration-")
        self.addCleanup(shutil.rmtree, folder)
        file = os.path.join(folder, "mine.json")
        Path(file).write_text(json.dumps({"version": 1, "host": "x", "cores": 1, "date": "2026-01-01", "transports": [
            {"transport": "shared memory", "ranks": 2, "latency_us": 2.0, "us_per_byte": 1e-4,
             "reduce_us_per_byte": 1e-4, "barrier_us": 1.0, "copy_us_per_byte": 1e-4}]}))
        flags = ["--steps", "2", "--warmup", "1", "--repeats", "1"]
        result = run("--write-cluster", file, "--json", *flags)
        self.assertEqual(result.returncode, 0, result.stderr)
        said = json.loads(result.stdout)
        self.assertEqual(said["file"], file)
        self.assertGreaterEqual(len(said["steps"]), 8)
        written = json.loads(Path(file).read_text())
        self.assertEqual(written["device"], said["device"])
        self.assertEqual(written["transports"][0]["latency_us"], 2.0, "links stay")
        self.assertGreater(len(written["products"]), 6)
        self.assertGreater(written["device"]["peak_tflops"]["float32"], 0.001)

        def trireme(*arguments):
            return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=100, cwd=folder,
                                  env=ENVIRONMENT)
        simulated = trireme("simulate", "--cluster", file, "--gpus", "4", "--json", "--model", "gpt2-bench",
                            "--train.micro_batch", "4")
        self.assertEqual(simulated.returncode, 0, simulated.stderr)
        self.assertGreater(json.loads(simulated.stdout)["step_seconds"], 0)
        # A run beside its prediction, and constants that it corrects.
        trained = trireme("train", "--nproc", "2", *[word for word in TINY if word.startswith("--model")],
                          "--train.steps=5", "--train.target_loss=0", "--train.micro_batch=1",
                          "--train.global_batch=4", "--json")
        self.assertEqual(trained.returncode, 0, trained.stderr)
        ran = os.path.join(folder, json.loads(trained.stdout)["run_dir"])
        fixed = os.path.join(folder, "corrected.json")
        compared = trireme("simulate", "--run", ran, "--cluster", file, "--write-cluster", fixed, "--json")
        self.assertEqual(compared.returncode, 0, compared.stderr)
        both = json.loads(compared.stdout)
        self.assertAlmostEqual(both["before"]["steps"][0]["step_ms"], json.loads(trained.stdout)["step_ms"], places=3)
        self.assertLessEqual(both["after"]["time_error"], both["before"]["time_error"] + 1e-6)
        self.assertLess(both["after"]["memory_error"], 0.05)
        again = trireme("simulate", "--run", ran, "--cluster", fixed, "--json")
        self.assertAlmostEqual(json.loads(again.stdout)["before"]["time_error"], both["after"]["time_error"], places=2)
        for mistake, words in [(["--run", folder], "no run folder"), (["--write-cluster"], "give --run FOLDER")]:
            refused = trireme("simulate", *mistake, "--cluster", file)
            self.assertEqual(refused.returncode, 2, mistake)
            self.assertIn(words, refused.stderr)

    def test_single_operators_make_a_cluster_in_seconds(self):
        folder = tempfile.mkdtemp(prefix="trireme-probe-")
        self.addCleanup(shutil.rmtree, folder)
        file = os.path.join(folder, "mine.json")

        def trireme(*arguments):
            return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=100, cwd=folder,
                                  env=ENVIRONMENT)
        probed = trireme("bench", "tensor", "--write-cluster", file)
        self.assertEqual(probed.returncode, 0, probed.stderr)
        self.assertIn("what core reaches", probed.stdout)
        self.assertIn("bench train --write-cluster", probed.stdout)
        written = json.loads(Path(file).read_text())
        self.assertGreater(len(written["products"]), 6)
        simulated = trireme("simulate", "--cluster", file, "--gpus", "2", "--json", "--model", "gpt2-bench")
        self.assertEqual(simulated.returncode, 0, simulated.stderr)
        refused = trireme("bench", "tensor", "--write-cluster", file, "--only", "mm")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("leave out --only", refused.stderr)
        refused = trireme("bench", "tensor", "--device", "cuda")
        self.assertEqual(refused.returncode, 2, refused.stderr)
        self.assertIn("--write-cluster", refused.stderr)

    def test_text(self):
        result = run(*TINY, "--layouts", "dp=1;dp=2")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ["gpt2 of ", "layout", "tok/s", "exposed", "peak memory", "reduced a step", "dp=1", "dp=2",
                     "% of twice one worker (of the same batch in all)", "bit for bit"]:
            self.assertIn(part, result.stdout)
        self.assertNotIn("DDP", result.stdout)
        self.assertIn("bench train", result.stderr)  # progress


class PretendedGpu(unittest.TestCase):
    """The command, and the script that compares with PyTorch, where workers and PyTorch are made up: they say what they
    were asked."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="trireme-bench-gpu-")
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        shutil.copytree(os.path.join(BIN, "../lib"), self.root / "lib", symlinks=True,
                        ignore=lambda _, names: [name for name in names if not name.startswith("libtrireme.so")])
        (self.root / "lib/libtrireme_gpu.so").touch()
        (self.root / "bin").mkdir()
        self.trireme = shutil.copy(TRIREME, self.root / "bin")
        self.temporary = self.root / "temporary"
        self.temporary.mkdir()
        kernels = [{"name": "nvjet_sm90_TNN", "us": 60000.0, "count": 40},
                   {"name": "cudnn_sdpa", "us": 20000.0, "count": 2}]
        worker = {"step_ms": 100.0, "tokens_per_second": 655360.0, "parts_ms": {"other": 100.0}, "loss": 10.5,
                  "peak_memory_bytes": 1 << 30, "state_bytes": 2 << 30, "reduced_bytes_per_step": 0,
                  "parameters": 124475904, "transport": "alone", "device_memory_bytes": 23 << 30, "kernels": kernels}
        self.script("bin/trireme-tensor", f"ls -s '{self.temporary}' >> '{self.root}/files'", worker)

    def script(self, path, before, answer):
        path = self.root / path
        # A worker of ours gets its training as a file.
        path.write_text(f"#!/bin/sh\necho \"$0 $* $([ -e \"$2\" ] && cat \"$2\")\" >> '{self.root}/asked'\n{before}\n"
                        f"cat <<'END'\n{json.dumps(answer)}\nEND\n")
        path.chmod(0o755)

    def run_it(self, *arguments, **variables):
        environment = {**ENVIRONMENT, "TMPDIR": str(self.temporary), **variables}
        result = subprocess.run([self.trireme, "bench", "train", "--device", "cuda", *arguments], capture_output=True,
                                text=True, timeout=60, cwd=FOLDER, env=environment)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(os.listdir(self.temporary), [])
        return result.stdout

    def test_both_modes_take_turns(self):
        report = json.loads(self.run_it("--json", "--repeats", "2", "--peak-tflops", "800"))
        whole = (self.root / "asked").read_text().splitlines()
        kinds = ["deterministic" if '"train.deterministic":true' in line else "fastest" for line in whole]
        self.assertEqual(kinds, 2 * ["deterministic", "fastest"])
        self.assertIn("--profile 2", whole[0])
        self.assertEqual([each["layout"] for each in report["results"]], ["deterministic", "fastest"])
        self.assertAlmostEqual(report["tokens_per_second"], 655360)
        self.assertAlmostEqual(report["gpu_busy"], 0.8)
        self.assertEqual(report["kernels_us"], {"nvjet_sm90_TNN": 60000, "cudnn_sdpa": 20000})
        self.assertEqual(report["device_memory_bytes"], 23 << 30)
        self.assertAlmostEqual(report["of_peak"], report["tflops"] / 800)
        self.assertRegex((self.root / "files").read_text(), r"trireme-bench-tokens-\d+\.bin")
        self.assertEqual(report["notes"], [])

    def beside_pytorch(self, python):
        return subprocess.run([sys.executable, SCRIPT, "--bin", str(self.root / "bin"), "--repeats", "2"],
                              capture_output=True, text=True, timeout=60, cwd=FOLDER,
                              env={**ENVIRONMENT, "TMPDIR": str(self.temporary), "TRIREME_PYTHON": python})

    def test_a_script_compares_with_pytorch_in_turn(self):
        self.script("python", "echo a compiler says something", {"step_ms": 200.0, "version": "2.11.0",
                                                                 "peak_memory_bytes": 30 << 30})
        done = self.beside_pytorch(str(self.root / "python"))
        self.assertEqual(done.returncode, 0, done.stderr)
        whole = (self.root / "asked").read_text().splitlines()
        kinds = ["eager" if "--mode eager" in line else "compiled" if "--mode compiled" in line else
                 "deterministic" if '"train.deterministic":true' in line else "fastest" for line in whole]
        self.assertEqual(kinds, 2 * ["deterministic", "fastest", "eager", "compiled"])
        self.assertIn("--layers 12 --hidden 768 --heads 12 --seq 1024 --vocab 50304 --batch 64 --steps 20 --warmup 5",
                      whole[2])
        self.assertRegex(done.stdout, r"fastest +655,360 +100\.0 .* 2\.00x +2\.00x")
        self.assertRegex(done.stdout, r"PyTorch compiled +327,680 +200\.0 ")
        self.assertRegex(done.stdout, r"matrix products +60\.0 +75 %")
        self.assertIn("attention", done.stdout)

    def test_a_pytorch_that_fails_is_left_out(self):
        self.script("python", "exit 42", {})
        done = self.beside_pytorch(str(self.root / "python"))
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("PyTorch is left out: ", done.stdout)
        self.assertIn("655,360", done.stdout)


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
        self.check(["--device", "cuda", "--compare", "ddp"], "--compare ddp", "bench/gpu_training.py")
        self.check(["--device", "tpu"], "--device tpu", "known: cpu, cuda")
        self.check(["--peak-tflops", "-1"], "--peak-tflops")
        self.check(["--layouts", "dp"], "\"dp\" has no value")
        self.check(["--layouts", ";"], "names no layout")
        self.check(["--layouts", "dp=3"], "train.global_batch = 16", "dp = 3")
        self.check(["--steps", "0"], "--steps")
        self.check(["--train.setps=3"], "train.steps")

    @unittest.skipIf(os.path.exists(os.path.join(BIN, "../lib/libtrireme_gpu.so")), "this build has GPU code")
    def test_a_build_without_gpu_code_says_so(self):
        before = set(os.listdir(tempfile.gettempdir()))
        for arguments in [["--device", "cuda"], ["--train.device=cuda"], ["--device=cuda", "--model", "gpt2-tiny"]]:
            self.check(arguments, "this build has no GPU code", "cmake --preset cuda")
        left = {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("trireme-bench-tokens-")} - before
        self.assertEqual(left, set())
        if os.path.exists(os.path.join(BIN, "trireme-tensor")):
            # A worker says the same as the command, which only looks whether the library is there.
            training = subprocess.run([TRIREME, "train", "--train.device=cuda", "--nproc", "1"], capture_output=True,
                                      text=True, timeout=120, cwd=FOLDER, env=ENVIRONMENT)
            self.assertIn(run("--device", "cuda").stderr, training.stderr)
            self.assertEqual(training.returncode, 2)


if __name__ == "__main__":
    unittest.main()
