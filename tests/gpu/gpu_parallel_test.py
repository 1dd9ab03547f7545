#!/usr/bin/env python3
# ctest: timeout=300
"""Workers that share one GPU train to the same bits as one worker alone, by CUDA IPC and by NCCL."""
import concurrent.futures
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

BIN = os.environ.get("TRIREME_BIN_DIR", "build/cuda/bin")
GPT = ["--model", "gpt2-tiny", "--model.hidden=128", "--model.heads=4", "--model.seq=64"]
COMMON = ["--train.global_batch=16", "--train.micro_batch=2", "--data.generated_size=100000", "--train.device=cuda"]


def run(arguments, **environment):
    return subprocess.run([os.path.join(BIN, "trireme"), *arguments], capture_output=True, text=True, timeout=200,
                          env={**os.environ, **environment})


def has_gpu():
    try:
        return "GPU" in subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True).stdout
    except OSError:
        return False


def compare(a, b, backend, more, model=GPT, verdict="equal"):
    done = run(["verify", "--a", a, "--b", b, "--steps", "4", "--json", *model, *COMMON, *more], TRIREME_GPU_BACKEND=backend)
    return done, verdict


def distance(a, b):
    """The largest difference of two losses of the same step, relative."""
    assert len(a) == len(b) > 1, (a, b)
    return max(abs(one - other) / abs(other) for one, other in zip(a, b))


class Timed(unittest.TestCase):
    """Says what each test has taken: whoever stops them all wants to know which one is slow."""

    def setUp(self):
        start = time.monotonic()
        self.addCleanup(lambda: print(f"{self.id()}: {time.monotonic() - start:.0f} s", file=sys.stderr))


class Layouts(Timed):
    def check(self, cases):
        """Most of a case is the start of its workers, so eight run side by side: (a, b, backend, more, …) of each."""
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            for case, (done, verdict) in zip(cases, pool.map(lambda case: compare(*case), cases)):
                with self.subTest(case=case):
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
                    self.assertEqual(json.loads(done.stdout)["verdict"], verdict, done.stdout)

    def test_data_parallelism(self):
        cases = [("dp=1", f"dp={workers}", "ipc", [f"--precision.compute={compute}"])
                 for workers in (2, 4, 8) for compute in ("float32", "bfloat16")]
        cases += [("dp=1", f"dp={workers}", "nccl", ["--precision.compute=bfloat16"]) for workers in (2, 4)]
        cases += [("dp=1", "dp=2", "ipc", ["--precision.compute=bfloat16"], ["--model", "llama-tiny"])]
        self.check(cases)

    def test_tensor_parallelism_but_for_rounding(self):
        exact = ["--precision.compute=float32"]
        cases = [("dp=1", layout, backend, exact, GPT, "noise") for layout, backend in (
            ("dp=1,tp=2", "ipc"), ("dp=1,tp=4", "ipc"), ("dp=1,tp=2", "nccl"), ("dp=2,tp=2", "ipc"),
            ("dp=1,tp=2,sequence=true", "ipc"))]
        cases += [("dp=1", "dp=1,tp=2", "ipc", exact, ["--model", "llama-tiny"], "noise"),
                  ("dp=1,tp=2", "dp=2,tp=2", "ipc", ["--precision.compute=bfloat16"])]
        self.check(cases)

    def test_pipelines(self):
        deep = GPT + ["--model.layers=6"]
        cases = [("dp=1", layout, backend, ["--precision.compute=bfloat16", "--train.clip=0.1"], deep) for layout, backend in (
            ("dp=1,pp=2", "ipc"), ("dp=1,pp=2,schedule=zb-h1", "ipc"), ("dp=1,pp=4", "ipc"),
            ("dp=1,pp=4,schedule=gpipe", "ipc"), ("dp=1,pp=2,schedule=interleaved", "ipc"),
            ("dp=1,pp=2,schedule=zb-v", "ipc"), ("dp=2,pp=2", "ipc"), ("dp=1,pp=2", "nccl"))]
        self.check(cases + [("dp=1,tp=2", "dp=1,pp=2,tp=2", "ipc", ["--precision.compute=float32"], deep)])

    def test_stages_of_different_shapes(self):
        deep = GPT + ["--model.layers=6"]
        cases = [("dp=1", layout, backend, ["--precision.compute=bfloat16", "--train.clip=0.1", *more], deep)
                 for layout, backend, more in (
                     ("stages=2x1+1x1", "ipc", []), ("stages=1x1+2x1,schedule=zb-h1", "ipc", []),
                     ("stages=2x1+1x1", "nccl", []), ("stages=1x1+2x1+1x1", "ipc", ["--parallel.zero=2"]),
                     ("stages=2x1+1x1", "ipc", ["--parallel.zero=3"]))]
        cases += [("dp=1", f"stages={stages},sequence={sequence}", "ipc", ["--precision.compute=float32"], deep, "noise")
                  for stages, sequence in (("1x2+1x1", "false"), ("2x1+1x2", "true"))]
        self.check(cases)

    def losses(self, *arguments):
        """Of each step of a training."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        done = run(["train", *GPT, *COMMON, "--train.clip=0", "--train.steps=6", "--train.log_every=1",
                    "--train.target_loss=0", "--optimizer.warmup_steps=0", "--optimizer.lr=5e-4",
                    "--observe.run_dir=" + os.path.join(folder, "run"), *arguments])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        with open(os.path.join(folder, "run", "events.jsonl")) as events:
            return [event["values"]["loss"] for event in map(json.loads, events) if event["kind"] == "step"]

    def test_asynchronous_pipelines(self):
        """Their rules are tested to the bit on the CPU (pipedream_test): a GPU must follow the same ones."""
        kinds = ("pipedream", "pipedream-vertical-sync", "pipedream-2bw")
        cases = [(kind, device, "float32") for kind in kinds for device in ("cuda", "cpu")]
        cases += [("pipedream", "cuda", "bfloat16")]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = dict(zip(cases, pool.map(lambda case: self.losses(
                "--model.layers=4", "--model.tied=false", "--parallel.dp=1", "--parallel.pp=3",
                f"--parallel.schedule={case[0]}", f"--train.device={case[1]}", f"--precision.compute={case[2]}"), cases)))
        for kind in kinds:
            with self.subTest(kind=kind):
                self.assertLess(distance(found[kind, "cuda", "float32"], found[kind, "cpu", "float32"]), 2e-4)
        full = found["pipedream", "cuda", "float32"]
        self.assertLess(distance(found["pipedream", "cuda", "bfloat16"], full), 0.02)
        self.assertGreater(distance(found["pipedream-vertical-sync", "cuda", "float32"], full), 1e-3)  # another rule

    def follow_the_cpu(self, methods):
        """Two workers on the GPU have the losses of two on the CPU, but for rounding."""
        cases = [(i, device) for i in range(len(methods)) for device in ("cuda", "cpu")]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = dict(zip(cases, pool.map(lambda case: self.losses(
                "--parallel.dp=2", "--precision.compute=float32", *methods[case[0]], f"--train.device={case[1]}"),
                cases)))
        for i, method in enumerate(methods):
            with self.subTest(method=method):
                self.assertLess(distance(found[i, "cuda"], found[i, "cpu"]), 2e-3)
        return [found[i, "cuda"] for i in range(len(methods))]

    def test_compression(self):
        """What is sent, what is kept and what is added are the same."""
        self.follow_the_cpu((
            ["--compression.method=topk", "--compression.density=0.05"], ["--compression.method=powersgd"],
            ["--compression.method=qsgd", "--compression.bits=8"], ["--compression.method=bfloat16"],
            ["--compression.method=terngrad", "--compression.clip_deviations=2.5"],
            ["--compression.method=onebit_adam", "--compression.warmup_steps=3"],
            ["--compression.method=sign", "--parallel.zero=2"], ["--compression.gather=int8", "--parallel.zero=3"],
            ["--compression.gather=int8", "--compression.method=int8", "--parallel.zero=3"]))

    def test_replicas_that_step_alone(self):
        alone, _, adasum = self.follow_the_cpu((
            ["--local.method=average", "--local.every=2", "--train.clip=0.5"],
            ["--local.method=diloco", "--local.every=3", "--local.format=int8"],
            ["--parallel.aggregation=adasum"]))
        self.assertNotEqual(alone, adasum)

    def test_offload(self):
        """The host's optimizer gives the GPU's bits for the GPU's gradients, so offload changes none."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.check([("dp=1", layout, "ipc", [f"--precision.compute={compute}", "--train.clip=0.1"])
                    for layout, compute in (
                        ("dp=1,offload=memory", "float32"), ("dp=1,offload=memory", "bfloat16"),
                        (f"dp=2,zero=1,offload={folder}", "bfloat16"), ("dp=2,zero=3,offload=memory", "bfloat16"),
                        ("dp=2,zero=2,offload=memory", "float32"), ("dp=1,pp=2,offload=memory", "bfloat16"))])

    def test_offload_of_weights(self):
        """They come from the host's memory, or a file, before each layer."""
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        self.check([("dp=1", f"{layout},zero=3,offload={where},offload_weights=true", backend,
                     [f"--precision.compute={compute}", "--train.clip=0.1"])
                    for layout, where, backend, compute in (
                        ("dp=1", "memory", "ipc", "float32"), ("dp=1", "memory", "ipc", "bfloat16"),
                        ("dp=2", "memory", "ipc", "bfloat16"), ("dp=2", folder, "nccl", "float32"),
                        ("dp=4", "memory", "ipc", "float32"), ("dp=1,pp=2", "memory", "ipc", "bfloat16"),
                        ("dp=1", folder, "ipc", "bfloat16"))])

    def test_servers(self):
        """With rounds servers change no bit; in other modes, losses stay close."""
        servers = ["--parallel.aggregation=server", "--server.count=2"]
        two, cut, mixed = ["--parallel.dp=2"], ["--parallel.dp=1", "--parallel.pp=2"], ["--precision.compute=bfloat16"]
        pairs = {"float32": two, "bfloat16": two + mixed, "cut": cut, "alone": ["--parallel.dp=1"]}
        cases = {f"{name}, {kind}": how + more for name, how in pairs.items()
                 for kind, more in (("sums", []), ("servers", servers))}
        cases["asynchronous"] = two + servers + ["--server.mode=asynchronous"]
        cases["packed"] = two + servers + ["--compression.method=int8"]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            found = dict(zip(cases, pool.map(lambda arguments: self.losses(*arguments), cases.values())))
        for name in pairs:
            with self.subTest(name=name):
                self.assertEqual(found[f"{name}, servers"], found[f"{name}, sums"])
        self.assertNotEqual(found["packed"], found["float32, sums"])
        self.assertLess(distance(found["packed"], found["float32, sums"]), 0.02)
        self.assertLess(distance(found["asynchronous"], found["float32, sums"]), 0.2)

    def test_zero(self):
        self.check([("dp=1", layout, backend, ["--precision.compute=bfloat16", "--train.clip=0.1"]) for layout, backend in (
            ("dp=2,zero=1", "ipc"), ("dp=2,zero=2", "ipc"), ("dp=2,zero=3", "ipc"), ("dp=4,zero=3", "ipc"),
            ("dp=4,zero=3,zero_shards=2", "ipc"), ("dp=2,zero=3", "nccl"), ("dp=2,pp=2,zero=3", "ipc"),
            ("dp=4,zero=2", "nccl"))])

    def test_zero_measures_on_blocks_of_unequal_length(self):
        """Held-out samples go through a GPU one by one, and in stage 3 all replicas gather weights for each."""
        done = run(["bench", "train", *GPT, "--device", "cuda", "--train.global_batch=32", "--train.micro_batch=16",
                    "--train.leaves=2", "--layouts", "dp=2,zero=3", "--steps", "8", "--warmup", "3", "--repeats", "1",
                    "--json"])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


class Traces(Timed):
    def test_gathers_run_beside_computation(self):
        with tempfile.TemporaryDirectory() as folder:
            traced = os.path.join(folder, "traced")
            wide = ["--model", "gpt2-124m", "--model.layers=6", "--model.hidden=1536", "--model.heads=12"]
            done = run(["train", *wide, "--parallel.dp=2", "--parallel.zero=3", "--train.device=cuda",
                        "--precision.compute=bfloat16", "--train.global_batch=64", "--train.micro_batch=32",
                        "--train.steps=4", "--train.eval_every=0", "--data.generated_size=1000000",
                        "--observe.trace_steps=1", f"--observe.run_dir={traced}"], TRIREME_GPU_BACKEND="ipc")
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            done = run(["trace", traced, "--json"])
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
            leader, other = json.loads(done.stdout)["gpus"]
            # One rank moves the bytes of both. Layers this wide keep the GPU busy while the next is gathered.
            self.assertGreater(leader["hidden_ms"], 0.5 * leader["moving_ms"], done.stdout)
            self.assertGreater(leader["moving_ms"], 0, done.stdout)
            self.assertGreater(other["computing_ms"], 0, done.stdout)


class Mistakes(Timed):
    def test_a_full_gpu_is_told_in_words(self):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        done = run(["train", "--nproc", "1", "--model", "gpt2-1.5b", "--train.device=cuda", "--train.micro_batch=4096",
                    "--train.global_batch=4096", "--train.steps=1", "--precision.compute=bfloat16",
                    "--data.generated_size=8000000", "--observe.run_dir=" + os.path.join(folder, "run")])
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("out of memory", done.stderr)
        self.assertIn("lower train.micro_batch", done.stderr)


if __name__ == "__main__":
    if not has_gpu():
        print("no GPU: not run")
        sys.exit(0)
    unittest.main()
