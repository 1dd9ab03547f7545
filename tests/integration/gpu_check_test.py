"""`tools/gpu_check`: what it says without a GPU, and how it counts. The GPU and the programs are made up here."""
# ctest: timeout=120

import os
import re
import subprocess
import tempfile
import unittest
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "gpu_check"
# What the tool reports, and the suites of gpu_tests that each but the first is.
PARTS = {"gpu_test": None, "gpu_functions_test": "GpuFunctions", "gpu_trainer_test": "GpuTrainer", "gpu_fp8_test": "GpuFp8",
         "gpu_comm_test": "GpuComm"}
HAS_GPU = os.path.exists("/dev/nvidia0")


def script(path, text):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n" + text + "\n")
    path.chmod(0o755)


class GpuCheck(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory(prefix="trireme-gpu-check-")
        self.addCleanup(self.folder.cleanup)
        self.root = Path(self.folder.name)
        self.build = self.root / "build"
        self.python = None

    def run_tool(self, *arguments):
        variables = {k: v for k, v in os.environ.items() if not k.startswith("TRIREME_")}
        variables |= {"TRIREME_BUILD_DIR": str(self.build), "PATH": f"{self.root / 'path'}:{os.environ['PATH']}"}
        if self.python:
            variables["TRIREME_PYTHON"] = str(self.python)
        return subprocess.run([TOOL, *arguments], capture_output=True, text=True, timeout=60, env=variables)

    def pretend_gpu(self, answer="GPU 0: NVIDIA H200 (UUID: GPU-1)"):
        script(self.root / "path" / "nvidia-smi", f"echo '{answer}'")

    def pretend_build(self, **texts):
        (self.build / "lib").mkdir(parents=True)
        (self.build / "lib" / "libtrireme_gpu.so").touch()
        passed = "echo '[  PASSED  ] 3 tests.'"
        script(self.build / "bin" / "gpu_test", texts.get("gpu_test", passed))
        cases = "".join(f"*{suite}*) {texts.get(name, passed)};;\n" for name, suite in PARTS.items() if suite)
        script(self.build / "bin" / "gpu_tests", f'case "$*" in\n{cases}esac')
        self.python = self.root / "path" / "some-python"  # the tests that are scripts pass
        script(self.python, "exit 0")

    def table(self, result):
        rows = re.findall(r"^(\w+)  +(\S.*?)  +(\d+)$", result.stdout, re.MULTILINE)
        return {name: what for name, what, _ in rows}

    @unittest.skipIf(HAS_GPU, "this machine has a GPU")
    def test_without_a_gpu_it_says_so(self):
        for arguments, code in [([], 3), (["--allow-none"], 0), (["--bench", "--sanitize"], 3)]:
            result = self.run_tool(*arguments)
            self.assertEqual(result.returncode, code, result)
            self.assertRegex(result.stdout, r"^no GPU: not run \(.+\)\n$")
        self.assertFalse(self.build.exists())

    def test_a_driver_without_a_card_is_no_gpu(self):
        self.pretend_gpu("No devices were found")
        result = self.run_tool()
        self.assertEqual(result.returncode, 3)
        self.assertEqual(result.stdout, "no GPU: not run (nvidia-smi says: No devices were found)\n")

    def test_all_passed(self):
        self.pretend_gpu()
        self.pretend_build()
        result = self.run_tool()
        self.assertEqual(result.returncode, 0, result)
        self.assertEqual(self.table(result), {name: "passed" for name in [*PARTS, "gpu_parallel_test"]})
        self.assertTrue((self.build / "gpu_check" / "gpu_test.log").exists())

    def test_whatever_did_not_pass_is_named_and_fails(self):
        self.pretend_gpu()
        self.pretend_build(gpu_functions_test="echo a bad sum; exit 1", gpu_trainer_test="echo 'no GPU: not run'")
        (self.build / "bin" / "gpu_test").unlink()
        result = self.run_tool()
        self.assertEqual(result.returncode, 1, result)
        self.assertEqual(self.table(result), {"gpu_test": "not built", "gpu_functions_test": "failed (1)",
                                              "gpu_trainer_test": "not run", "gpu_fp8_test": "passed",
                                              "gpu_comm_test": "passed", "gpu_parallel_test": "passed"})
        self.assertIn("a bad sum", result.stderr)

    def test_benchmarks_take_the_measured_peak(self):
        self.pretend_gpu()
        self.pretend_build()
        script(self.build / "bin" / "bench_gpu_kernels", "echo kernels")
        products = "\n".join(f'{{\n"searched_tflops": {speed},\n"type": "{kind}"\n}}'
                             for speed, kind in [(610.5, "bf16"), (1200.0, "fp8"), (702.25, "bf16"), (650, "bf16")])
        script(self.build / "bin" / "bench_gpu_matmul", f"cat <<'END'\n{products}\nEND")
        script(self.build / "bin" / "trireme", 'echo "asked: $*"')
        result = self.run_tool("--bench", "--repeats", "2")
        self.assertEqual(result.returncode, 0, result)
        asked = re.findall("asked: (.*)", result.stdout)
        self.assertEqual(len(asked), 4)
        for words in asked:
            self.assertRegex(words, r"^bench train --device cuda --repeats 2 --peak-tflops 702\.[23]")
        self.assertEqual(["--compare torch" in words for words in asked], [True, True, True, False])
        self.assertIn("--precision.matmul=fp8", asked[3])
        self.assertIn("--model gpt2-1.5b", asked[2])
        again = self.run_tool("--bench", "--only", "batch 32")
        self.assertEqual(again.returncode, 0, again)
        self.assertRegex(again.stdout, r"asked: .* --peak-tflops 702\.[23] --compare torch --train.global_batch=32\n")
        self.assertEqual(again.stdout.count("asked: "), 1)

    def test_mistakes(self):
        self.pretend_gpu()
        for arguments, part in [(["--fast"], "unknown flag --fast"), (["--repeats", "many"], "many"),
                                (["--logs"], "needs a value")]:  # before it looks for anything
            result = self.run_tool(*arguments)
            self.assertEqual(result.returncode, 2, result)
            self.assertIn(part, result.stderr)
        result = self.run_tool()
        self.assertEqual(result.returncode, 1)
        self.assertIn("cmake --preset cuda", result.stderr)
        self.pretend_build()
        result = self.run_tool("--only", "nothing")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--only nothing", result.stderr)
        self.assertIn("--allow-none", self.run_tool("--help").stdout)


if __name__ == "__main__":
    unittest.main()
