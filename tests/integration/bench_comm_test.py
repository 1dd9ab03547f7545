"""`trireme bench comm`: what it reports, what it refuses, and that it leaves nothing behind. No times are judged here."""
# ctest: timeout=600

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")
HAS_MPI = shutil.which("mpirun") is not None and os.path.exists(os.path.join(BIN, "trireme-peer-mpi"))
FOLDER = tempfile.mkdtemp(prefix="trireme-bench-")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "SLURM_"))}
ENVIRONMENT["TRIREME_CLUSTER"] = os.path.join(FOLDER, "cluster.json")
SHORT = ["--seconds-per-point", "20ms"]
FIELDS = {"operation", "transport", "algorithm", "ranks", "bytes", "us", "predicted_us", "floor_us", "mpi_us",
          "gloo_us", "registered", "algbw_gbs", "busbw_gbs"}


def tearDownModule():
    shutil.rmtree(FOLDER)


def run(*arguments, **variables):
    return subprocess.run([TRIREME, "bench", "comm", *arguments], capture_output=True, text=True, timeout=300,
                          env={**ENVIRONMENT, **variables})


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(child) for child in file.read().split()]


def workers_of(pid):
    found = []
    for child in children_of(pid):
        with open(f"/proc/{child}/cmdline") as file:
            if "--worker" in file.read():
                found.append(child)
    return found


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


class Table(unittest.TestCase):
    def results(self, *arguments, **variables):
        result = run("--json", *SHORT, *arguments, **variables)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        for each in report["results"]:
            self.assertLessEqual(FIELDS, set(each))
            self.assertGreater(each["us"], 0)
        return report

    def test_json(self):
        report = self.results("--sizes", "4KiB,64KiB", "--operations", "all-reduce,broadcast")
        results = report["results"]
        points = [(r["operation"], r["bytes"], r["registered"]) for r in results]
        self.assertEqual(points, [(o, b, r) for o in ["all-reduce", "broadcast"] for b in [4096, 65536]
                                  for r in [True, False]])
        for each in results:
            self.assertEqual(each["ranks"], 2)
            self.assertEqual(each["transport"], "shared memory")
            self.assertGreater(each["floor_us"], 0)
            self.assertGreater(each["predicted_us"], 0)
            self.assertIsNone(each["mpi_us"])
            self.assertIsNone(each["gloo_us"])
            self.assertAlmostEqual(each["algbw_gbs"], each["bytes"] / each["us"] / 1000, 3)
            self.assertAlmostEqual(each["busbw_gbs"], each["algbw_gbs"], 3)  # both factors are 1 for two ranks
            self.assertGreaterEqual(each["rounds"], 3)
        self.assertGreaterEqual(report["machine"]["cores"], 1)

    def test_bus_bandwidth_of_three_ranks(self):
        factors = {"all-reduce": 4 / 3, "reduce-scatter": 2 / 3, "all-gather": 2 / 3, "broadcast": 1, "all-to-all": 2 / 3}
        results = self.results("--ranks", "3", "--sizes", "12KiB", "--buffers", "user")["results"]
        self.assertEqual([r["operation"] for r in results], list(factors))
        for each in results:
            self.assertFalse(each["registered"])
            self.assertAlmostEqual(each["busbw_gbs"], each["algbw_gbs"] * factors[each["operation"]], 3)

    def test_transports(self):
        for transport in ["threads", "tcp"]:
            results = self.results("--sizes", "4KiB", "--transport", transport, "--buffers", "registered")["results"]
            self.assertEqual({r["transport"] for r in results}, {transport})
            self.assertEqual(len(results), 5)

    def test_all_algorithms(self):
        results = self.results("--sizes", "4KiB", "--algorithm", "all", "--buffers", "registered")["results"]
        names = [r["algorithm"] for r in results]
        self.assertEqual(len(names), len(set(names)))
        self.assertLessEqual({"sequential", "ring", "tree", "butterfly", "in-place"}, set(names))
        results = self.results("--sizes", "4KiB", "--algorithm", "all", "--transport", "tcp")["results"]
        self.assertNotIn("in-place", [r["algorithm"] for r in results])

    @unittest.skipUnless(HAS_MPI, "no MPI here")
    def test_beside_mpi(self):
        report = self.results("--sizes", "4KiB,16KiB", "--compare", "mpi")
        for each in report["results"]:
            self.assertGreater(each["mpi_us"], 0)
        self.assertIn("MPI", report["machine"]["mpi"])

    def test_without_gloo_the_rest_is_there(self):
        for variables in [{}, {"TRIREME_PYTHON": "/no/such/python"}]:
            report = self.results("--sizes", "4KiB", "--operations", "broadcast", "--compare", "gloo", **variables)
            self.assertEqual({r["gloo_us"] for r in report["results"]}, {None})
            self.assertIn("pip install torch", " ".join(report["notes"]))

    def test_text(self):
        result = run(*SHORT, "--sizes", "4KiB", "--operations", "all-reduce")
        self.assertEqual(result.returncode, 0, result.stderr)
        for part in ["all-reduce · 2 ranks · shared memory · in-place", "registered µs", "user µs", "bus GB/s",
                     "predicted", "floor", "4 KiB"]:
            self.assertIn(part, result.stdout)
        self.assertNotIn("MPI", result.stdout)
        self.assertIn("bench comm", result.stderr)  # progress


class Explain(unittest.TestCase):
    def test_counts_what_is_sent(self):
        result = run("--explain", "--json", "--ranks", "2,3", "--sizes", "12KiB", *SHORT)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        n = 12 * 1024
        for ranks in [2, 3]:
            rows = {row["algorithm"]: row for row in report["explain"]["algorithms"] if row["ranks"] == ranks}
            self.assertEqual(rows["ring"]["bytes_sent"], 2 * (ranks - 1) * n // ranks)
            self.assertEqual(rows["ring"]["messages_sent"], 2 * (ranks - 1))
            self.assertEqual(rows["parallel"]["bytes_sent"], (ranks - 1) * n)
            self.assertEqual(rows["parallel"]["rounds"], 1)
            self.assertEqual(rows["sequential"]["bytes_sent"], n)
            self.assertEqual(rows["sequential"]["root_bytes_sent"], (ranks - 1) * n)
            self.assertEqual(rows["in-place"]["bytes_sent"], 0)
            self.assertEqual([name for name, row in rows.items() if row["chosen"]], ["in-place"])
            self.assertIn("share memory", rows["in-place"]["why"])
            for row in rows.values():
                self.assertGreater(row["us"], 0)
                self.assertTrue(row["complexity"])
                self.assertTrue(row["formula"])
        self.assertEqual([each["ranks"] for each in report["explain"]["crossings"]], [2, 3])
        self.assertEqual(len(report["results"]), len(report["explain"]["algorithms"]))

    def test_text(self):
        result = run("--explain", "--sizes", "4KiB", "--transport", "tcp", *SHORT)
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertEqual(result.stdout.count("← chosen"), 1)
        for part in ["all-reduce of 4 KiB · 2 ranks · tcp", "messages a rank", "bytes a rank", "rounds", "chosen: ",
                     "fixed order", "any order", "recursive-halving"]:
            self.assertIn(part, result.stdout)


class WriteCluster(unittest.TestCase):
    def test_fits_and_keeps(self):
        path = os.path.join(FOLDER, "fitted.json")
        with open(path, "w") as file:
            json.dump({"version": 1, "host": "other", "cores": 1, "date": "2020-01-01", "transports": [
                {"transport": "nvlink", "ranks": 8, "latency_us": 5, "us_per_byte": 1e-6, "reduce_us_per_byte": 0,
                 "barrier_us": 9, "copy_us_per_byte": 0}]}, file)
        result = run("--write-cluster", path, "--json", "--sizes", "4KiB", "--buffers", "registered", *SHORT)
        self.assertEqual(result.returncode, 0, result.stderr)
        report = json.loads(result.stdout)
        self.assertLessEqual({"threads", "shared memory", "tcp"},
                             {each["transport"] for each in report["cluster"]["transports"]})
        for each in report["cluster"]["transports"]:
            for constant in ["us_per_byte", "reduce_us_per_byte", "copy_us_per_byte", "barrier_us"]:
                self.assertGreaterEqual(each[constant], 0, each)
            self.assertGreaterEqual(each["latency_us"], 0)
            self.assertGreaterEqual(each["all_reduce_error"], 0)
            self.assertEqual(len(each["all_reduce"]), 4)
        with open(path) as file:
            kept = json.load(file)
        self.assertIn(("nvlink", 8), [(t["transport"], t["ranks"]) for t in kept["transports"]])
        self.assertIn(("shared memory", 2), [(t["transport"], t["ranks"]) for t in kept["transports"]])
        self.assertNotEqual(kept["host"], "other")
        [row] = report["results"]  # the table predicts from the new constants
        [shared] = [t for t in kept["transports"] if t["transport"] == "shared memory"]
        self.assertGreaterEqual(row["predicted_us"], shared["barrier_us"])


class Mistakes(unittest.TestCase):
    def check(self, arguments, *parts, code=2, **variables):
        result = run(*arguments, **variables)
        self.assertEqual(result.returncode, code, result)
        self.assertEqual(result.stdout, "")
        self.assertTrue(result.stderr.startswith("error: "), result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)

    def test_names(self):
        self.check(["--operations", "all-redcue"], "all-redcue", "did you mean all-reduce?")
        self.check(["--transport", "tpc"], "did you mean tcp?")
        self.check(["--algorithm", "rign"], "did you mean 'ring'?")
        self.check(["--buffers", "registred"], "did you mean registered?")
        self.check(["--compare", "nccl"], "nccl", "mpi, gloo")
        self.check(["--device", "cda"], "did you mean cuda?")
        self.check(["--sises", "4KiB"], "did you mean --sizes?")

    def test_values(self):
        self.check(["--sizes", "10"], "whole number of floats", "8 or 12")
        self.check(["--sizes", "0"], "nearest: 4")
        self.check(["--sizes", "1000TiB"], "memory")
        self.check(["--ranks", "0"], "--ranks 0")
        self.check(["--ranks", "-2"], "-2")
        self.check(["--seconds-per-point", "0"], "--seconds-per-point 0")

    def test_what_does_not_go_together(self):
        self.check(["--explain", "--compare", "mpi"], "--explain")
        self.check(["--explain", "--ranks", "1"], "at least 2 ranks")
        self.check(["--algorithm", "in-place", "--transport", "tcp"], "shared memory")
        self.check(["--device", "cuda", "--explain"], "its own backends, ipc and nccl")

    @unittest.skipIf(os.path.exists(os.path.join(BIN, "..", "lib", "libtrireme_gpu.so")), "built with GPU code")
    def test_a_build_without_gpu_code_says_so(self):
        self.check(["--device", "cuda"], "no GPU code", "--preset cuda")

    def test_without_mpirun(self):
        self.check(["--compare", "mpi"], "mpirun", "openmpi-bin", code=1, PATH="/nonexistent")
        self.check(["--transport", "mpi"], "mpirun", "openmpi-bin", code=1, PATH="/nonexistent")


class Endings(unittest.TestCase):
    def start(self, *arguments):
        process = subprocess.Popen([TRIREME, "bench", "comm", "--seconds-per-point", "30", *arguments],
                                   stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ENVIRONMENT)
        self.addCleanup(process.communicate)
        self.addCleanup(process.kill)
        deadline = time.monotonic() + 60
        while len(workers_of(process.pid)) < 2 and time.monotonic() < deadline:
            time.sleep(0.02)
        time.sleep(0.5)
        return process, workers_of(process.pid)

    def check_gone(self, pids):
        deadline = time.monotonic() + 10
        while any(is_running(pid) for pid in pids) and time.monotonic() < deadline:
            time.sleep(0.02)
        self.assertFalse([pid for pid in pids if is_running(pid)])

    def test_a_worker_dies(self):
        process, workers = self.start()
        os.kill(workers[1], signal.SIGKILL)
        _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, 1, errors)
        self.assertIn(f"our rank 1 (pid {workers[1]}) was killed by SIGKILL", errors)
        self.check_gone(workers)

    def test_interrupt(self):
        for number in [signal.SIGINT, signal.SIGTERM]:
            process, workers = self.start()
            process.send_signal(number)
            _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 128 + number, errors)
            self.assertIn("stopped by " + number.name, errors)
            self.check_gone(workers)

    def test_killed(self):
        process, workers = self.start(*(["--compare", "mpi"] if HAS_MPI else []))
        everybody = children_of(process.pid)
        everybody += [grandchild for child in everybody for grandchild in children_of(child)]
        self.assertLessEqual(set(workers), set(everybody))
        process.kill()
        process.communicate(timeout=60)
        self.check_gone(everybody)


if __name__ == "__main__":
    unittest.main()
