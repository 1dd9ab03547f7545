"""The program `trireme` as a whole: help, version, mistakes, doctor, train. Run by ctest with TRIREME_BIN_DIR set."""
# ctest: timeout=300

import json
import os
import re
import signal
import subprocess
import time
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")
HAS_TENSOR = os.path.exists(os.path.join(BIN, "trireme-tensor"))
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "SLURM_"))}

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it, and so would trireme


def run(*arguments, **variables):
    return subprocess.run([TRIREME, *arguments], capture_output=True, text=True, timeout=120,
                          env={**ENVIRONMENT, **variables})


def commands():
    """The subcommands that --help lists."""
    return re.findall(r"^  trireme (\w+)  ", run("--help").stdout, re.MULTILINE)


class Help(unittest.TestCase):
    def test_lists_every_command_and_what_to_try(self):
        result = run("--help")
        self.assertEqual(result.returncode, 0)
        self.assertLessEqual({"train", "launch", "bench", "doctor"}, set(commands()))
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
        self.check(["train", "--step=5"], "unknown flag --step", "did you mean --steps?")
        self.check(["launch", "--nproc-per-nod", "2", "--", "true"], "did you mean --nproc-per-node?")
        self.check(["--verison"], "did you mean --version?")

    def test_unknown_argument(self):
        self.check(["doctor", "extra"], "unknown argument extra")

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


@unittest.skipUnless(HAS_TENSOR, "built without libtorch")
class Train(unittest.TestCase):
    def test_learns(self):
        result = run("train")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ["2 workers", "Learnt it", "equal on all ranks", "Try next"]:
            self.assertIn(part, result.stdout)

    def test_the_layout_does_not_change_the_answer(self):
        one, two, four = (json.loads(run("train", "--json", "--steps", "100", "--nproc", n).stdout) for n in "124")
        for report, ranks in [(one, 1), (two, 2), (four, 4)]:
            self.assertEqual(report["ranks"], ranks)
            self.assertTrue(report["equal_weights"])
            self.assertEqual(report["weights_checksum"], one["weights_checksum"])
            self.assertEqual(report["final_loss"], one["final_loss"])
            self.assertEqual(report["accuracy"], one["accuracy"])
            self.assertEqual(report["steps"], 100)
            for field in ["samples_per_second", "step_ms"]:
                self.assertGreater(report[field], 0, field)

    def test_a_missed_target_is_a_failure(self):
        result = run("train", "--steps", "2")
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertIn("Missed the target", result.stdout)
        self.assertNotIn("error", result.stderr)

    def test_under_another_launcher(self):
        result = run("launch", "--nproc-per-node", "2", "--", TRIREME, "train", "--steps", "20", "--json")
        self.assertEqual(json.loads(result.stdout)["ranks"], 2)

    def test_ctrl_c(self):
        process = subprocess.Popen([TRIREME, "train", "--steps", "1000000"], stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, env=ENVIRONMENT)
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertEqual(process.returncode, 130)


@unittest.skipIf(HAS_TENSOR, "built with libtorch")
class TrainWithoutLibtorch(unittest.TestCase):
    def test_says_what_is_missing(self):
        result = run("train")
        self.assertEqual(result.returncode, 1)
        self.assertIn("built without libtorch", result.stderr)


if __name__ == "__main__":
    unittest.main()
