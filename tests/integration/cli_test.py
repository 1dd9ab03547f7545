"""The program `trireme` as a whole: help, mistakes, doctor, train, verify. Run by ctest with TRIREME_BIN_DIR set."""
# ctest: timeout=300

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")
HAS_TENSOR = os.path.exists(os.path.join(BIN, "trireme-tensor"))
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "SLURM_"))}
TINY = ["--model", "gpt2-tiny", "--data.generated_size=65536"]

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would trireme


def run(*arguments, cwd=None, **variables):
    return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=120, cwd=cwd,
                          env={**ENVIRONMENT, **variables})


def commands():
    """The subcommands that --help lists."""
    return re.findall(r"^  trireme (\w+)  ", run("--help").stdout, re.MULTILINE)


class Help(unittest.TestCase):
    def test_lists_every_command_and_what_to_try(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        self.assertLessEqual({"train", "verify", "checkpoint", "launch", "bench", "doctor"}, set(commands()))
        self.assertIn("Try first", result.stdout)
        self.assertEqual(run().stdout, result.stdout)

    def test_every_command_has_an_example(self):
        for command in commands():
            result = run(command, "--help")
            self.assertEqual(result.returncode, 0, command)
            self.assertRegex(result.stdout, rf"trireme {command}: ", command)
            self.assertGreaterEqual(len(re.findall(rf"^  .*trireme {command}", result.stdout, re.MULTILINE)), 1, command)
            self.assertNotIn("Print this help message", result.stdout)

    def test_lines_fit_a_terminal(self):
        for command in commands():
            for line in run(command, "--help").stdout.splitlines():
                self.assertLessEqual(len(line), 120, line)

    def test_version(self):
        result = run("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^trireme \d+\.\d+\.\d+")


class Mistakes(unittest.TestCase):
    def check(self, arguments, *parts):
        result = run(*arguments)
        self.assertEqual(result.returncode, 2, result)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_unknown_command(self):
        self.check(["lanch"], "unknown command lanch", "did you mean launch?")
        self.check(["doktor", "--json"], "did you mean doctor?")
        self.check(["xyzzy"], "unknown command xyzzy", "trireme --help")

    def test_unknown_flag(self):
        self.check(["doctor", "--jsn"], "unknown flag --jsn", "did you mean --json?")
        self.check(["train", "-x"], "unknown flag -x")
        self.check(["launch", "--nproc-per-nod", "2", "--", "true"], "did you mean --nproc-per-node?")
        self.check(["--verison"], "did you mean --version?")

    def test_unknown_argument(self):
        self.check(["doctor", "extra"], "unknown argument extra")

    def test_unknown_key(self):
        self.check(["train", "--train.stepz=5"], "unknown key train.stepz", "did you mean train.steps?")
        self.check(["train", "--optimizer.rl", "3"], "unknown key optimizer.rl", "did you mean optimizer.lr?")
        self.check(["train", "--model", "gpt3"], "there is no preset", "gpt2-tiny")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "mine.toml")
            file.write_text("[model]\nsqe = 64\n")
            self.check(["train", str(file)], "unknown key model.sqe", "mine.toml:2:1", "did you mean model.seq?")
            file.write_text("[model\n")
            self.check(["train", str(file)], "mine.toml:1")

    def test_wrong_value_of_a_key(self):
        self.check(["train", "--train.steps=soon"], "train.steps = soon", "whole number")
        self.check(["train", "--precision.compute=float8"], "precision.compute", "bfloat16")
        self.check(["train", "--train.global_batch=100", "--nproc", "8"], "train.global_batch = 100", "nearest ")
        self.check(["train", "--parallel.dp=4", "--nproc", "2"], "parallel.dp = 4", "--nproc 4")
        self.check(["train", "one.toml", "two.toml"], "two configs")

    def test_json_has_the_fields(self):
        for arguments, fields in [
                (["train", "--train.stepz=5"], {"error": "unknown key train.stepz (command line)", "key": "train.stepz",
                                                "cure": "did you mean train.steps?"}),
                (["train", "--train.global_batch=100", "--nproc", "8"], {"key": "train.global_batch"}),
                (["verify", "--b", "dp=3"], {"key": "train.global_batch"}),
                (["simulate", "--parallel.dp=4", "--gpus", "2"], {"key": "parallel.dp"}),
                (["plan", "--gpus", "3", "--parallel.tp", "2"], {"key": "parallel.tp"}),
                (["plan", "--check", "nowhere.json"], {"file": "nowhere.json", "fits_this_model": False}),
                (["doctor", "--nonsense"], {"error": "unknown flag --nonsense"})]:
            result = run(*arguments, "--json")
            self.assertEqual(result.returncode, 2, result)
            failure = json.loads(result.stdout)
            self.assertLessEqual(fields.items(), failure.items())
            self.assertTrue(result.stderr.startswith("error: " + failure["error"]), result.stderr)

    def test_no_such_run(self):
        with tempfile.TemporaryDirectory() as folder:
            self.check(["train", "--resume", folder], "no run folder", "config.toml")

    def test_wrong_value(self):
        self.check(["launch", "--nproc-per-node", "many", "--", "true"], "--nproc-per-node", "many")
        self.check(["launch", "--timeout", "5", "--", "true"], "5")
        self.check(["train", "--nproc", "0"], "--nproc")

    def test_launch_without_a_program(self):
        self.check(["launch"], "no program")
        self.check(["launch", "--", "no-such-program"], "no-such-program", "PATH")

    def test_several_nodes(self):
        self.check(["launch", "--nnodes", "2", "--", "true"], "--master-addr")
        self.check(["launch", "--nnodes", "1:4", "--", "true"], "elastic")
        nodes = ["--nnodes", "2", "--node-rank", "1", "--master-addr", "10.0.0.1", "--master-port", "2900"]
        self.check(["launch", *nodes, "--", "true"], "token")
        result = run("launch", *nodes, "--nproc_per_node=2", "--", "sh", "-c", "echo $TRIREME_RANK",
                     TRIREME_TOKEN="a shared secret of some length")
        self.assertEqual(sorted(result.stdout.split()), ["2", "3"], result)


class Launch(unittest.TestCase):
    def test_flags_after_the_program_are_its_own(self):
        for dashes in [[], ["--"]]:
            result = run("launch", "--nproc-per-node", "1", *dashes, "echo", "--timeout", "5", "--", "--json")
            self.assertEqual(result.stdout, "--timeout 5 -- --json\n", result.stderr)

    def test_ends_when_nobody_reads_its_output(self):
        for ignored in [False, True]:  # SIGPIPE
            process = subprocess.Popen([TRIREME, "launch", "--nproc-per-node", "2", "--prefix", "--", "yes"],
                                       stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=ENVIRONMENT,
                                       restore_signals=not ignored)
            self.assertIn(process.stdout.readline(), [b"[rank 0] y\n", b"[rank 1] y\n"])
            process.stdout.close()
            self.assertNotEqual(process.wait(timeout=60), 0)


class Doctor(unittest.TestCase):
    def test_table(self):
        result = run("doctor")
        self.assertEqual(result.returncode, 0, result.stdout)
        for word in ["build", "libtorch", "CUDA", "mpirun", "cores", "memory", "peers", "open files", "loopback"]:
            self.assertIn(word, result.stdout)
        self.assertNotIn("\033", result.stdout)

    def test_json_says_the_same(self):
        result = run("doctor", "--json")
        report = json.loads(result.stdout)
        self.assertEqual(result.returncode, 0 if report["healthy"] else 1)
        table = run("doctor").stdout
        for fact in report["facts"]:
            self.assertIn(fact["state"], ["good", "absent", "broken"])
            self.assertIn(fact["name"], table)
            if fact["state"] != "good":
                self.assertTrue(fact["cost"], fact)

    def test_without_anything_in_path(self):
        result = run("doctor", PATH="/nowhere")
        self.assertEqual(result.returncode, 0, result.stdout)
        self.assertIn("apt install openmpi-bin", result.stdout)


class Start(unittest.TestCase):
    def test_libtorch_is_not_loaded(self):
        libraries = subprocess.run(["ldd", TRIREME], capture_output=True, text=True, check=True).stdout
        self.assertNotRegex(libraries, r"\blib(torch|c10|cuda)")
        for arguments in [["--help"], ["doctor", "--json"]]:
            loaded = run(*arguments, LD_DEBUG="files").stderr
            self.assertNotRegex(loaded, r"calling init: \S*(libtorch|libc10)")

    def test_says_how_long_it_takes(self):
        for arguments in [["--help"], ["doctor"]]:
            times = []
            for _ in range(10):
                start = time.monotonic()
                run(*arguments)
                times.append(time.monotonic() - start)
            print(f"trireme {arguments[0]}: {min(times) * 1000:.1f} ms (best of {len(times)}; aim: 50)")


class Config(unittest.TestCase):
    def test_shows_every_value_and_its_origin(self):
        result = run("train", *TINY, "--train.steps=7", "--show-config")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertRegex(result.stdout, r"(?m)^steps = 7 +# command line$")
        self.assertRegex(result.stdout, r"(?m)^layers = 2 +# preset gpt2-tiny$")
        self.assertRegex(result.stdout, r"(?m)^lr = [\d.]+ +# default$")
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "shown.toml")
            file.write_text(result.stdout)
            again = run("train", str(file), "--show-config")
        first, second = ([line.split(" #")[0].rstrip() for line in each.stdout.splitlines()] for each in (result, again))
        self.assertEqual(first, second)

    def test_refuses_settings_that_a_compression_method_does_not_take(self):
        for method, feedback, more in [("qsgd", "on", []), ("terngrad", "on", []),
                                       ("dgc", "off", ["--optimizer.kind=sgd", "--optimizer.momentum=0"]),
                                       ("onebit_adam", "off", ["--compression.warmup_steps=5", "--train.clip=0"])]:
            with self.subTest(method):
                keys = [f"--compression.method={method}", *more]
                self.assertEqual(run("train", *TINY, *keys, "--show-config").returncode, 0)
                result = run("train", *TINY, *keys, f"--compression.error_feedback={feedback}", "--show-config")
                self.assertEqual(result.returncode, 2, result.stdout)
                self.assertIn(f'compression.error_feedback = "{feedback}"', result.stderr)
                self.assertIn("leave it at its default", result.stderr)

    def test_presets(self):
        names = [line.split()[0] for line in run("train", "--presets").stdout.splitlines()]
        self.assertLessEqual({"default", "gpt2-tiny", "resnet18", "llama-tiny", "mlp"}, set(names))
        for name in names:
            shown = run("train", "--model", name, "--show-config")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertIn(f'preset = "{name}"', shown.stdout)


@unittest.skipUnless(HAS_TENSOR, "built without libtorch")
class Train(unittest.TestCase):
    def setUp(self):
        place = tempfile.TemporaryDirectory()
        self.addCleanup(place.cleanup)
        self.folder = place.name

    def train(self, *arguments, **variables):
        return run("train", *TINY, *arguments, cwd=self.folder, **variables)

    def report(self, *arguments, **variables):
        result = self.train("--json", *arguments, **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def differences(self, a, b):
        result = run("checkpoint", "diff", "--json", a, b, cwd=self.folder)
        self.assertIn(result.returncode, (0, 1), result.stderr)
        return json.loads(result.stdout)

    def test_says_what_it_does_and_what_to_try(self):
        result = self.train("--train.steps=4")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ["gpt2 of 121K parameters", "2 workers", "dp=2", "Done: loss", "runs/gpt2-tiny-1/report.html",
                     "a page for a browser", "Try next:  trireme train --model gpt2-tiny --data.path my.txt ",
                     "trireme verify runs/gpt2-tiny-1/config.toml --a dp=1 --b dp=2"]:
            self.assertIn(part, result.stdout)
        self.assertNotIn("\033", result.stdout + result.stderr)
        missed = self.train("--train.steps=2", "--train.target_loss=0.01")
        self.assertEqual(missed.returncode, 1, missed.stderr)
        self.assertIn("Missed the target", missed.stdout)
        self.assertIn("Try next:  trireme train --resume runs/gpt2-tiny-2 --train.steps=4 ", missed.stdout)
        images = run("train", "--model", "mlp", "--train.steps=1", cwd=self.folder)
        self.assertNotIn("my.txt", images.stdout)

    def test_run_folder(self):
        self.train("--train.steps=4", "--train.log_every=1", "--checkpoint.every=2")
        place = Path(self.folder, "runs", "gpt2-tiny-1")
        self.assertEqual(Path(self.folder, "runs", "latest", "events.jsonl").resolve(), (place / "events.jsonl").resolve())
        self.assertIn("steps = 4", (place / "config.toml").read_text())
        events = [json.loads(line) for line in (place / "events.jsonl").read_text().splitlines()]
        self.assertEqual([event["step"] for event in events if event["kind"] == "step"], [1, 2, 3, 4])
        self.assertEqual(events[-1]["kind"], "end")
        self.assertIn("</html>", (place / "report.html").read_text())
        self.assertTrue(list((place / "tensorboard").iterdir()))
        result = run("checkpoint", "list", "--json", str(place))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(sorted(entry.name for entry in (place / "checkpoints").glob("step-*")),
                         ["step-000002", "step-000004"])
        self.assertEqual(run("checkpoint", "verify", str(place)).returncode, 0)

    def test_worker_0_alone_writes(self):
        for spread, writers in [("false", 1), ("true", 2)]:
            for writes_behind in ["true", "false"]:
                report = self.report("--train.steps=4", "--checkpoint.every=2", f"--checkpoint.spread={spread}",
                                     f"--checkpoint.async={writes_behind}")
                for step in ["step-000002", "step-000004"]:
                    files = Path(self.folder, report["run_dir"], "checkpoints", step).glob("*.safetensors")
                    shards = {re.search(r"-(\d+)-of-(\d+)\.", file.name).groups() for file in files}
                    self.assertEqual(shards, {(f"{writer:05}", f"{writers:05}") for writer in range(writers)})

    def test_a_resume_with_other_steps_leaves_the_presets_target(self):
        place = Path(self.folder, "run")
        place.mkdir()
        (place / "config.toml").write_text(run("train", "--show-config").stdout)
        for words, target in [([], "0.75"), (["--train.steps=150"], "0.0"), (["--optimizer.lr=1e-3"], "0.75"),
                              (["--train.steps=150", "--train.target_loss=0.5"], "0.5")]:
            shown = run("train", "--resume", str(place), *words, "--show-config")
            self.assertEqual(shown.returncode, 0, shown.stderr)
            self.assertRegex(shown.stdout, rf"(?m)^target_loss = {re.escape(target)}\s", words)

    def test_json(self):
        report = self.report("--train.steps=4")
        for field in ["tokens_per_second", "step_ms", "loss", "final_loss", "peak_memory_bytes"]:
            self.assertGreater(report[field], 0, field)
        for part in ["forward", "backward", "optimizer"]:
            self.assertGreater(report["parts_ms"][part], 0, part)
        self.assertEqual((report["steps"], report["ranks"], report["layout"]), (4, 2, "dp=2"))
        self.assertTrue(Path(self.folder, report["run_dir"], "report.html").exists())

    def test_the_layout_does_not_change_the_answer(self):
        runs = {n: self.report("--train.steps=6", "--train.micro_batch=4", "--nproc", str(n)) for n in (1, 2, 4)}
        for n, report in runs.items():
            self.assertEqual(report["ranks"], n)
            self.assertEqual(report["final_loss"], runs[1]["final_loss"])
            self.assertEqual(report["held_out_loss"], runs[1]["held_out_loss"])
            self.assertTrue(self.differences(runs[1]["run_dir"], report["run_dir"])["equal"])
        other = self.report("--train.steps=6", "--train.micro_batch=4", "--train.seed=2")
        self.assertFalse(self.differences(runs[1]["run_dir"], other["run_dir"])["equal"])

    def test_ctrl_c_saves_and_another_number_of_workers_goes_on(self):
        keys = ["--train.steps=150", "--train.micro_batch=4", "--observe.run_dir=stopped"]
        process = subprocess.Popen([TRIREME, "train", *TINY, *keys], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                   cwd=self.folder, env=ENVIRONMENT, text=True)
        events = Path(self.folder, "stopped", "events.jsonl")
        deadline = time.monotonic() + 60
        while not (events.exists() and '"kind":"step"' in events.read_text()) and time.monotonic() < deadline:
            self.assertIsNone(process.poll())
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said, complained = process.communicate(timeout=60)
        self.assertIn(process.returncode, (0, 130), complained)
        self.assertIn("Stopped at step", said)
        self.assertIn("trireme train --resume stopped", said)
        resumed = run("train", "--resume", "stopped", "--nproc", "4", cwd=self.folder)
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertIn("Resumed from", resumed.stdout)
        straight = self.report("--train.steps=150", "--train.micro_batch=4", "--nproc", "1")
        self.assertTrue(self.differences("stopped", straight["run_dir"])["equal"])

    def test_a_missed_target_is_a_failure(self):
        result = self.train("--train.steps=2", "--train.target_loss=0.01")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("Missed the target", result.stdout)
        self.assertNotIn("error", result.stderr)
        as_json = self.train("--train.steps=2", "--train.target_loss=0.01", "--json")
        self.assertFalse(json.loads(as_json.stdout)["reached_target"])
        reached = self.train("--train.steps=2", "--train.target_loss=100")
        self.assertEqual(reached.returncode, 0, reached.stderr)
        self.assertIn("Learnt it", reached.stdout)

    def test_own_text_and_images(self):
        Path(self.folder, "my.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 500)
        report = self.report("--data.path=my.txt", "--train.steps=30")
        self.assertLess(report["final_loss"], 5)
        images = json.loads(run("train", "--model", "mlp", "--train.steps=3", "--train.global_batch=48",
                                "--train.micro_batch=12", "--json", cwd=self.folder).stdout)
        self.assertAlmostEqual(images["samples_per_second"] * images["step_ms"] / 1000, 48, delta=0.5)

    def test_a_file_that_is_not_there(self):
        result = self.train("--data.path=nowhere.txt")
        self.assertEqual(result.returncode, 1)
        self.assertIn("nowhere.txt", result.stderr)
        self.assertIn("data.path", result.stderr)

    def test_json_says_which_worker_failed_and_where(self):
        nan = {"TRIREME_FAULT": "rank=1,step=2,point=train.gradient,kind=errno:EIO"}
        result = self.train("--train.steps=4", "--nproc", "2", "--json", **nan)
        self.assertEqual(result.returncode, 1)
        failure = json.loads(result.stdout)
        self.assertLessEqual({"rank": 1, "step": 2}.items(), failure.items())
        self.assertLessEqual({"error", "cure", "micro_batch", "parameter"}, failure.keys())
        self.assertIn(f"error: {failure['error']}\n", result.stderr)
        # Without our launcher worker 0 prints it.
        launched = run("launch", "--nproc-per-node", "2", "--", TRIREME, "train", *TINY, "--train.steps=4", "--json",
                       cwd=self.folder, **nan)
        self.assertEqual(json.loads(launched.stdout), failure)
        # A worker that dies says nothing, but its peer does: where in the step it was, and whom it blames.
        killed = self.train("--train.steps=4", "--nproc", "2", "--parallel.pp=2", "--json",
                            TRIREME_FAULT="rank=1,step=2,point=train.gradient,kind=kill")
        failure = json.loads(killed.stdout)
        self.assertLessEqual({"rank": 0, "peer": 1, "step": 2, "stage": 0}.items(), failure.items(), killed.stdout)
        self.assertIn(f"step 2, {failure['instruction']}: ", failure["error"])

    def test_under_another_launcher(self):
        result = run("launch", "--nproc-per-node", "2", "--", TRIREME, "train", *TINY, "--train.steps=4", "--json",
                     cwd=self.folder)
        self.assertEqual(json.loads(result.stdout)["ranks"], 2)

    def test_with_the_variables_of_torchrun(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank in range(2):
            variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
            ranks.append(subprocess.Popen([TRIREME, "train", *TINY, "--train.steps=4", "--json"], cwd=self.folder,
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                          env={**ENVIRONMENT, **variables}))
        outputs = [process.communicate(timeout=120) for process in ranks]
        self.assertEqual([process.returncode for process in ranks], [0, 0], outputs)
        self.assertEqual(outputs[1][0], "")
        self.assertEqual(json.loads(outputs[0][0])["final_loss"], self.report("--train.steps=4")["final_loss"])


@unittest.skipUnless(HAS_TENSOR, "built without libtorch")
class Verify(unittest.TestCase):
    def verdict(self, *arguments):
        result = run("verify", *TINY, "--train.micro_batch=4", "--steps", "2", "--json", *arguments)
        report = json.loads(result.stdout)
        self.assertEqual(result.returncode, 0 if report["verdict"] in ("equal", "noise") else 1, result.stderr)
        return report

    def test_equal(self):
        report = self.verdict("--a", "dp=1", "--b", "dp=4")
        self.assertEqual((report["verdict"], report["steps"]), ("equal", 2))
        self.assertIsNone(report["first_difference"])
        self.assertIsNone(report["largest_difference"])

    def test_a_training_shorter_than_asked_for(self):
        report = self.verdict("--a", "dp=1", "--b", "dp=2", "--train.steps=1", "--optimizer.warmup_steps=0")
        self.assertEqual((report["verdict"], report["steps"]), ("equal", 1))

    def test_noise(self):
        report = self.verdict("--a", "train.micro_batch=8", "--b", "dp=2")
        self.assertEqual(report["verdict"], "noise")
        self.assertEqual(report["first_difference"]["step"], 1)

    def test_bug(self):
        report = self.verdict("--a", "dp=2", "--b", "dp=2,parallel.aggregation=sum")
        self.assertEqual(report["verdict"], "bug")
        self.assertIn("gradient.", report["first_difference"]["tensor"])

    def test_bug_of_gradients_in_bfloat16(self):
        # Adam makes the same step of gradients twice as large: only they tell.
        report = self.verdict("--a", "dp=2", "--b", "dp=2,parallel.aggregation=sum", "--precision.compute=bfloat16",
                              "--precision.gradients=compute", "--train.global_batch=8")
        self.assertEqual(report["verdict"], "bug")
        self.assertGreater(report["first_difference"]["relative"], 0.4)

    def test_wrong_words(self):
        for words, said in [(["--a", "dp"], '"dp" has no value'), (["--b", "dq=2"], "did you mean parallel.dp?"),
                            (["--train.stepz=5"], "did you mean train.steps?")]:
            result = run("verify", *TINY, *words, "--steps", "1")
            self.assertEqual(result.returncode, 2, result)
            self.assertIn(said, result.stderr)


class TrainWithoutLibtorch(unittest.TestCase):
    def test_says_what_is_missing(self):
        with tempfile.TemporaryDirectory() as folder:  # the program and its library, but no trireme-tensor beside it
            for name in ("bin/trireme", "lib/libtrireme.so"):
                os.makedirs(os.path.join(folder, os.path.dirname(name)))
                shutil.copy2(os.path.join(BIN, "..", name), os.path.join(folder, name))
            result = subprocess.run([os.path.join(folder, "bin", "trireme"), "train"], capture_output=True, text=True,
                                    timeout=120, cwd=folder, env=ENVIRONMENT)
        self.assertEqual(result.returncode, 1)
        self.assertIn("built without libtorch", result.stderr)


if __name__ == "__main__":
    unittest.main()
