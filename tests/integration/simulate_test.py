"""`trireme simulate`: what it prints, writes and refuses."""
# ctest: timeout=120

import json
import os
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

from schedules import kinds

TRIREME = os.path.join(os.environ["TRIREME_BIN_DIR"], "trireme")
FIELDS = ["step_seconds", "tokens_per_second_per_gpu", "model_tflops_per_gpu", "hardware_tflops_per_gpu",
          "memory_bytes_per_gpu", "bubble_fraction", "fits"]
# Megatron's 7.5B on 128 A100: 142 TFLOP/s with recomputation.
MEGATRON = ("--model.kind gpt --model.layers 36 --model.hidden 4096 --model.heads 32 --model.seq 2048 "
            "--model.vocab 51200 --cluster a100-80gb --gpus 128 --parallel.tp 4 --parallel.pp 1 --parallel.dp 32 "
            "--parallel.interleave 1 --parallel.schedule 1f1b --parallel.zero 0 --parallel.sequence false "
            "--train.micro_batch 16 --train.global_batch 512 --train.recompute full --precision.compute fp16").split()
LLAMA_405B = ("--model.kind llama --model.layers 126 --model.hidden 16384 --model.heads 128 --model.kv_heads 8 "
              "--model.ffn 53248 --model.seq 8192 --model.vocab 128256 --cluster h100-80gb --parallel.tp 8 "
              "--parallel.pp 16 --train.micro_batch 1 --train.global_batch 2048 --precision.compute bf16").split()
SMALL = "--model.layers 8 --model.hidden 1024 --model.heads 16 --model.seq 512 --precision.compute fp16".split()


def trireme(*arguments, code=0):
    result = subprocess.run([TRIREME, "simulate", *map(str, arguments)], capture_output=True, text=True, timeout=60,
                            env={**os.environ, "COLUMNS": "120"})
    assert result.returncode == code, (arguments, result)
    return result.stdout if code == 0 else result.stdout + result.stderr


def numbers(*arguments):
    return json.loads(trireme(*arguments, "--json"))


def changed(arguments, **keys):
    """The arguments with other values of some keys: parallel_tp=2 for --parallel.tp 2."""
    words = list(arguments)
    for key, value in keys.items():
        flag = "--" + key.replace("_", ".", 1)
        if flag in words:
            words[words.index(flag) + 1] = str(value)
        else:
            words += [flag, str(value)]
    return words


class Numbers(unittest.TestCase):
    def test_the_promised_fields(self):
        found = numbers(*MEGATRON)
        self.assertLessEqual(set(FIELDS), set(found))
        self.assertAlmostEqual(found["hardware_tflops_per_gpu"], 142, delta=7)
        self.assertTrue(found["fits"])
        self.assertEqual(found["gpus"], 128)
        self.assertAlmostEqual(found["parameters"], 7.5e9, delta=0.1e9)
        tokens = 512 * 2048 / found["step_seconds"] / 128
        self.assertAlmostEqual(found["tokens_per_second_per_gpu"], tokens, delta=1e-6 * tokens)

    def test_both_spellings_of_a_value(self):
        joined = [f"{a}={b}" for a, b in zip(MEGATRON[::2], MEGATRON[1::2])]
        self.assertEqual(numbers(*MEGATRON), numbers(*joined))
        short, long = changed(MEGATRON, model_kind="gpt"), changed(MEGATRON, model_kind="gpt2",
                                                                   precision_compute="float16")
        self.assertEqual(numbers(*short), numbers(*long))

    def test_dp_is_the_rest_of_the_gpus(self):
        rest = changed(MEGATRON, parallel_dp=-1)
        self.assertEqual(numbers(*rest)["layout"]["dp"], 32)

    def test_a_schedule_from_a_file(self):
        base = [*SMALL, "--cluster", "a100-80gb", "--train.micro_batch", 1, "--train.global_batch", 16, "--gpus", 8,
                "--parallel.pp", 4]
        with tempfile.TemporaryDirectory() as folder:
            file = os.path.join(folder, "mine.csv")
            subprocess.run([TRIREME, "schedule", "show", "--kind", "zb-h1", "--stages", "4", "--microbatches", "8",
                            "--csv", file], check=True, capture_output=True)
            named, own = (numbers(*base, "--parallel.schedule", schedule) for schedule in ("zb-h1", file))
            self.assertEqual(own["layout"].pop("schedule"), "own schedule")
            self.assertEqual(named["layout"].pop("schedule"), "zb-h1")
            self.assertEqual(own, named)
            self.assertIn("a schedule for 4 ranks and 8 micro-batches",
                          trireme(*changed(base, train_global_batch=32), "--parallel.schedule", file, code=2))
            Path(file).write_text("0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n")
            self.assertIn("would hang", trireme(*base, "--parallel.schedule", file, code=1))

    def test_every_degree_and_schedule(self):
        base = [*SMALL, "--cluster", "a100-80gb", "--train.micro_batch", 1, "--train.global_batch", 64]
        for schedule in kinds():
            with self.subTest(schedule):
                found = numbers(*base, "--gpus", 8, "--parallel.pp", 4, "--parallel.schedule", schedule)
                self.assertEqual(found["layout"]["dp"], 2)
                self.assertGreater(found["bubble_fraction"], 0)
        for zero in range(4):
            numbers(*base, "--gpus", 8, "--parallel.zero", zero)
        numbers(*base, "--gpus", 8, "--parallel.cp", 2, "--parallel.tp", 2, "--parallel.sequence")
        numbers(*base, "--gpus", 8, "--parallel.ep", 4, "--experts", 8, "--active-experts", 2)
        for method in ["float16", "topk", "powersgd"]:
            numbers(*base, "--gpus", 16, "--compression.method", method)
        numbers(*base, "--gpus", 8, "--train.recompute", "0-3")

    def test_a_mix_is_as_slow_as_its_slowest(self):
        base = [*SMALL, "--train.micro_batch", 1, "--train.global_batch", 64, "--gpus", 16]
        mix = numbers(*base, "--cluster", "a100-80gb+v100-16gb")
        self.assertGreaterEqual(mix["step_seconds"], numbers(*base, "--cluster", "a100-80gb")["step_seconds"])
        self.assertEqual(mix["memory_limit_bytes"], 16 * 1024**3)

    def test_the_parts_add_up_to_the_step(self):
        uneven = ["--model", "gpt2-1.5b", "--cluster", "a100-80gb", "--parallel.pp", 4, "--parallel.split",
                  "10,10,10,20", "--train.micro_batch", 1, "--train.global_batch", 256]
        mix = [*SMALL, "--cluster", "a100-80gb+v100-16gb", "--train.micro_batch", 1, "--train.global_batch", 64,
               "--gpus", 16, "--parallel.zero", 3]
        for arguments in (uneven, mix):
            found = numbers(*arguments)
            self.assertAlmostEqual(sum(found["seconds"].values()) / found["step_seconds"], 1)
            # One bubble in all of the output.
            self.assertLess(found["seconds"]["bubble"] / found["step_seconds"], found["bubble_fraction"] + 0.001)
            self.assertEqual(found["exposed_communication_seconds"], found["seconds"]["communication"])

    def test_a_slow_network_is_no_bubble(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "slow.json"
            file.write_text(json.dumps({"preset": "h100-80gb", "devices_per_host": 1, "between": {"gb_s": 1}}))
            found = numbers(*SMALL, "--cluster", file, "--parallel.pp", 4, "--train.micro_batch", 1,
                            "--train.global_batch", 16)
            self.assertTrue(found["binds"].startswith("communication that nothing hides"), found["binds"])
            self.assertGreater(found["seconds"]["communication"], 2 * found["seconds"]["bubble"])

    def test_compression_helps_where_links_are_slow(self):
        base = [*SMALL, "--cluster", "v100-16gb", "--train.micro_batch", 1, "--train.global_batch", 64, "--gpus", 64]
        plain, sparse, dense = (numbers(*base), *(numbers(*base, "--compression.method", "topk",
                                                            "--compression.density", density)
                                                  for density in ("0.001", "0.02")))
        self.assertLess(sparse["step_seconds"], 0.7 * plain["step_seconds"])
        # Each of 64 replicas gets what all have chosen: 2 % of the numbers with their places is more than all numbers.
        self.assertGreater(dense["step_seconds"], plain["step_seconds"])

    def test_other_models(self):
        found = numbers("--model.kind", "resnet", "--model.depth", 50, "--model.channels", 3, "--model.image", 224,
                        "--model.classes", 1000, "--cluster", "v100-16gb", "--gpus", 8, "--train.micro_batch", 32,
                        "--train.global_batch", 256)
        self.assertAlmostEqual(found["step_seconds"], 0.104, delta=0.02)
        numbers("--model.kind", "mlp", "--cluster", "laptop", "--train.global_batch", 8)
        self.assertTrue(numbers("--model", "gpt2-124m", "--cluster", "h200-141gb")["fits"])

    def test_tokens(self):
        gpt3 = ("--model.kind gpt --model.layers 96 --model.hidden 12288 --model.heads 96 --model.seq 2048 "
                "--model.vocab 50257 --cluster a100-80gb --gpus 1 --train.micro_batch 1 --train.global_batch 16 "
                "--train.recompute full --precision.compute fp16 --tokens 300e9").split()
        found = numbers(*gpt3)
        self.assertFalse(found["fits"])
        self.assertGreater(found["gpu_hours"], 5e5)
        self.assertLess(found["gpu_hours"], 3.1e6)  # the lecture notes' number, at a V100's speed
        self.assertAlmostEqual(found["total_seconds"], found["gpu_hours"] * 3600, delta=1)
        self.assertIn("300B tokens", trireme(*gpt3))

    def test_fp8_is_compared_with_its_own_peak(self):
        arguments = [*LLAMA_405B[:-2], "--gpus", 128, "--parallel.sequence", "--precision.compute", "bf16"]
        for extra, peak, words in (([], 989e12, "of its peak\n"),
                                   (["--precision.matmul", "fp8"], 1979e12, "of its peak in fp8\n")):
            share = 100 * 1e12 * numbers(*arguments, *extra)["model_tflops_per_gpu"] / peak
            text = trireme(*arguments, *extra)
            self.assertIn(f"a device, {share:.1f} % {words}", text)

    def test_many_devices(self):
        found = numbers(*LLAMA_405B, "--gpus", 16384)
        self.assertEqual(found["layout"]["dp"], 128)
        self.assertTrue(150 < found["model_tflops_per_gpu"] < 600, found)
        more = numbers(*changed(LLAMA_405B, train_global_batch=16384), "--gpus", 131072)
        self.assertEqual(more["gpus"], 131072)


class Memory(unittest.TestCase):
    def test_zero_is_the_table_of_the_paper(self):
        arguments = changed(MEGATRON, parallel_tp=1, parallel_dp=64, train_micro_batch=1)
        arguments[arguments.index("--gpus") + 1] = "64"
        found = numbers(*arguments, "--memory")
        accounting, psi = found["memory_accounting"], found["parameters"]
        self.assertEqual(accounting["bytes_per_parameter"], 16)
        for row, bytes_each in zip(accounting["zero"], [16, 4 + 12 / 64, 2 + 14 / 64, 16 / 64]):
            self.assertAlmostEqual(row["bytes"] / psi, bytes_each)
        self.assertAlmostEqual(accounting["zero"][0]["bytes_with_float32_gradients"] / psi, 20)
        for zero in range(4):
            memory = numbers(*arguments, "--parallel.zero", zero)["memory"]
            states = memory["parameters"] + memory["gradients"] + memory["optimizer"]
            self.assertAlmostEqual(states / psi, [16, 4 + 12 / 64, 2 + 14 / 64, 16 / 64][zero], places=6)
        # The trainer keeps no gradients in the compute type beside those in float32.
        trained = numbers(*arguments, "--precision.gradients", "float32", "--memory")
        self.assertEqual(trained["memory_accounting"]["bytes_per_parameter"], 18)

    def test_zero_table_is_what_a_rank_holds(self):
        experts = [*SMALL, "--cluster", "h100-80gb", "--gpus", 32, "--parallel.ep", 8, "--experts", 16,
                   "--parallel.pp", 2, "--train.micro_batch", 1, "--train.global_batch", 64]
        stages = [*SMALL, "--cluster", "a100-80gb", "--gpus", 16, "--parallel.pp", 4, "--train.micro_batch", 1,
                  "--train.global_batch", 64]
        for arguments in (experts, stages):
            for zero in range(4):
                for gradients, key in (("compute", "bytes"), ("float32", "bytes_with_float32_gradients")):
                    found = numbers(*arguments, "--memory", "--parallel.zero", zero, "--precision.gradients", gradients)
                    memory = found["memory"]
                    states = memory["parameters"] + memory["gradients"] + memory["optimizer"]
                    self.assertAlmostEqual(found["memory_accounting"]["zero"][zero][key] / states, 1)
                    rows = found["memory_accounting"]["layers"]
                    # Of two ranks, each has one of the ends and half of the blocks between them.
                    if arguments is experts:
                        end = rows[-1 if found["memory_rank"] else 0]["state_bytes"]
                        self.assertAlmostEqual((end + 4 * rows[1]["state_bytes"]) / states, 1)
        self.assertIn("16 replicas, 2 of experts", trireme(*experts, "--memory"))

    def test_kinds_add_up(self):
        found = numbers(*LLAMA_405B, "--gpus", 16384, "--memory")
        self.assertAlmostEqual(found["memory"]["total"], found["memory_bytes_per_gpu"])
        self.assertEqual(len(found["memory_accounting"]["ranks"]), 16)
        self.assertEqual({layer["layer"] for layer in found["memory_accounting"]["layers"]},
                         {"embedding", "block", "output"})
        self.assertIn("Model states: 16 bytes a parameter", trireme(*LLAMA_405B, "--gpus", 16384, "--memory"))

    def test_what_would_fit(self):
        arguments = changed(MEGATRON, parallel_tp=1, parallel_dp=128, train_micro_batch=4)
        found = numbers(*arguments)
        self.assertFalse(found["fits"])
        self.assertGreater(found["missing_bytes"], 0)
        self.assertTrue(any("parallel.zero" in way for way in found["would_fit"]), found["would_fit"])
        text = trireme(*arguments)
        self.assertIn("does not fit", text)
        self.assertIn("would fit:", text)

    def test_a_way_to_fit_is_what_it_says(self):
        mix = ("--model.kind gpt --model.layers 32 --model.hidden 4096 --model.heads 32 --model.seq 1024 "
               "--model.vocab 51200 --train.micro_batch 1 --train.global_batch 96 --precision.compute fp16 "
               "--cluster a100-80gb+v100-16gb --gpus 48 --parallel.tp 2 --parallel.pp 4").split()
        way = numbers(*mix)["would_fit"][0]
        self.assertIn("train.recompute = full: ", way)
        step = numbers(*mix, "--train.recompute", "full")["step_seconds"]
        self.assertAlmostEqual(float(way.split(", ")[-1].split()[0]), step, delta=0.005 * step)

    def test_how_many_devices_would_do(self):
        arguments = [*changed(LLAMA_405B, parallel_pp=1, train_global_batch=64), "--gpus", 8]
        ways = numbers(*arguments)["would_fit"]
        self.assertTrue(ways[0].startswith("128 devices with parallel.pp = 16, train.recompute = full"), ways)
        self.assertTrue(any("parallel.zero = 3" in way for way in ways), ways)
        self.assertTrue(ways[-1].startswith("this layout on devices with "), ways)
        grown = changed(arguments, parallel_pp=16, train_recompute="full", parallel_sequence="true")
        grown[grown.index("--gpus") + 1] = "128"
        self.assertTrue(numbers(*grown)["fits"])


class Words(unittest.TestCase):
    def test_percentages_say_what_they_are_of(self):
        text = trireme(*SMALL, "--cluster", "a100-80gb", "--parallel.pp", 4, "--train.micro_batch", 1,
                       "--train.global_batch", 8)
        self.assertRegex(text, r"step .* of it .*bubble \d+ %")
        self.assertRegex(text, r"idle .* of the pipeline's time")
        self.assertEqual(text.count("bubble"), 1)

    def test_small_models_and_single_things(self):
        arguments = ["--model", "gpt2-tiny", "--cluster", "a100-80gb", "--parallel.pp", 2, "--train.micro_batch", 1,
                     "--train.global_batch", 1, "--precision.compute", "fp16", "--memory"]
        text = trireme(*arguments)
        self.assertIn("1f1b of 1 micro-batch\n", text)
        self.assertIn(", 1 replica\n", text)
        self.assertRegex(text, r"memory +[\d.]+ [kM]B ")
        self.assertNotIn("slot", text)

    def test_this_machine(self):
        with tempfile.TemporaryDirectory() as home:
            environment = {key: value for key, value in os.environ.items() if key != "TRIREME_CLUSTER"}
            environment |= {"HOME": home, "XDG_CONFIG_HOME": home}
            cores = len(os.sched_getaffinity(0))

            def played(*arguments):
                result = subprocess.run([TRIREME, "simulate", *map(str, arguments)], capture_output=True, text=True,
                                        timeout=60, env=environment)
                self.assertEqual(result.returncode, 0, result)
                return result.stdout

            base = [*SMALL[:-2], "--cluster", "this", "--train.micro_batch", 1, "--train.global_batch", 8 * cores]
            self.assertRegex(played(*base), rf"\({cores} cores? a host, which its processes share\)")
            few, many = (json.loads(played(*base, "--parallel.dp", dp, "--json"))["step_seconds"]
                         for dp in (cores, 2 * cores))
            self.assertGreater(many, 0.95 * few)
            file = Path(home) / "trireme" / "cluster.json"
            file.parent.mkdir()
            file.write_text(json.dumps({"version": 1, "host": "here", "cores": 1, "date": "", "transports": [],
                                        "preset": "laptop", "device": {"memory_gb": 3}, "shared_cores": 1,
                                        "devices_per_host": 64}))
            self.assertIn("(1 core a host", played(*base))
        self.assertIn("laptop, this", trireme("--help"))


class Files(unittest.TestCase):
    def test_timeline(self):
        with tempfile.TemporaryDirectory() as folder:
            svg, trace = (Path(folder) / name for name in ["a.svg", "a.json"])
            trireme(*SMALL, "--cluster", "a100-80gb", "--gpus", 8, "--parallel.pp", 4, "--train.micro_batch", 1,
                    "--train.global_batch", 16, "--svg", svg, "--trace", trace)
            xml.etree.ElementTree.parse(svg)
            events = json.loads(trace.read_text())["traceEvents"]
            spans = [event for event in events if event["ph"] == "X"]
            self.assertEqual({event["pid"] for event in spans}, {0, 1, 2, 3})
            self.assertTrue(any(event["name"].startswith("AllReduce") for event in spans))
            self.assertTrue(all(event["dur"] >= 0 for event in spans))

    def test_pictures_have_the_whole_step(self):
        with tempfile.TemporaryDirectory() as folder:
            svg, trace = (Path(folder) / name for name in ["a.svg", "a.json"])
            arguments = [*SMALL, "--cluster", "v100-16gb", "--gpus", 16, "--train.micro_batch", 1,
                         "--train.global_batch", 32, "--svg", svg, "--trace", trace]
            step = numbers(*arguments)["step_seconds"]
            boxes = [(title.text, float(box.get("x")) + float(box.get("width")))
                     for box in xml.etree.ElementTree.parse(svg).iter("{http://www.w3.org/2000/svg}rect")
                     for title in box]
            self.assertTrue(any(text.startswith("AllReduce") for text, _ in boxes))
            last, right = max(boxes, key=lambda box: box[1])
            self.assertTrue(last.startswith("OptimizerStep"), last)
            self.assertAlmostEqual(float(last.split()[-2]) / 1e3, step, delta=1e-5 * step)
            self.assertAlmostEqual(right, 64 + 960, delta=1)  # the width of the picture
            self.assertIn(f"step {1e3 * step:.4g} ms", svg.read_text())
            events = json.loads(trace.read_text())["traceEvents"]
            end = max(event["ts"] + event["dur"] for event in events if event["ph"] == "X")
            self.assertAlmostEqual(end / 1e6, step, delta=1e-9)

    def test_memory_over_time(self):
        kinds = {"weights", "gradients", "optimizer", "activations", "buffers"}
        with tempfile.TemporaryDirectory() as folder:
            trace = Path(folder) / "a.json"
            base = [*SMALL, "--cluster", "v100-16gb", "--gpus", 8, "--parallel.pp", 4, "--train.micro_batch", 8,
                    "--train.global_batch", 128, "--memory", "--trace", trace]
            for recompute in ("none", "full"):
                ranks = numbers(*base, "--train.recompute", recompute)["memory_accounting"]["ranks"]
                counters = [event for event in json.loads(trace.read_text())["traceEvents"] if event["ph"] == "C"]
                self.assertTrue(all(set(event["args"]) == kinds for event in counters))
                for rank, memory in enumerate(ranks):
                    most = max(sum(event["args"].values()) for event in counters if event["pid"] == rank)
                    self.assertAlmostEqual(most / memory["total"], 1)

    def test_the_peak_of_recomputation_is_in_the_backward_pass(self):
        base = [*SMALL, "--cluster", "a100-80gb", "--parallel.pp", 2, "--train.micro_batch", 1,
                "--train.global_batch", 16]
        self.assertEqual(numbers(*base)["memory_peak_at"].split()[0], "Forward")
        self.assertEqual(numbers(*base, "--train.recompute", "full", "--parallel.split", "7,3")["memory_peak_at"].split()[0],
                         "Backward")

    def test_cluster_files(self):
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "mine.json"
            base = [*SMALL, "--gpus", 16, "--train.micro_batch", 1, "--train.global_batch", 16, "--cluster", file]
            steps = []
            for speed in [1, 10, 100]:
                file.write_text(json.dumps({"preset": "a100-80gb", "between": {"gb_s": speed}}))
                steps.append(numbers(*base)["step_seconds"])
            self.assertGreater(steps[0], steps[1])
            self.assertGreater(steps[1], steps[2])
            file.write_text(json.dumps({"devices_per_host": 4}))
            self.assertIn('"device" is missing', trireme(*base, code=2))
            file.write_text(json.dumps({"device": {"peak_tflops": {"float16": 100}}}))
            text = trireme(*base, code=2)
            for hole in ["device.memory_gb", "between.gb_s"]:
                self.assertIn(hole, text)
            file.write_text("{")
            self.assertIn("not JSON", trireme(*base, code=2))


class BadInput(unittest.TestCase):
    def test_is_named(self):
        for arguments, words in [
            (["--cluster", "a100-80g"], "did you mean a100-80gb"),
            (["--cluster", "cloud"], "known: v100-16gb"),
            ([*MEGATRON[:-2], "--gpus", 100], "--gpus"),
            (changed(MEGATRON, parallel_tp=5, parallel_dp=-1), "cannot be split"),
            (changed(MEGATRON, model_heads=31), "heads"),
            (changed(MEGATRON, train_global_batch=500), "global batch of 500"),
            (changed(MEGATRON, parallel_schedule="1f2b"), "1f1b"),
            (changed(MEGATRON, parallel_zero=4), "parallel.zero"),
            (changed(MEGATRON, parallel_ep=2), "--experts"),
            (changed(MEGATRON, parallel_plan="auto"), "parallel.plan"),
            (changed(MEGATRON, model_kin="gpt"), "model.kind"),
            (["--gpus", 0], "--gpus"),
            (["--attention", "slow"], "attention"),
            ([*SMALL[:-1], "bf16", "--cluster", "v100-16gb", "--train.global_batch", 8], "bfloat16"),
            (["--cluster", "laptop", "--gpus", 64, "--train.global_batch", 512], "laptop"),
            (["--model.kind", "gpt", "--gpus", 8], "train.global_batch = 16 (the default) cannot be split over dp = 8"),
            (["--model.kind", "gpt", "--precision.compute", "fp8"], 'precision.matmul = "fp8"'),
        ]:
            with self.subTest(arguments=arguments):
                text = trireme(*arguments, code=2)
                self.assertTrue(text.startswith("error: "), text)
                self.assertIn(words, text)

    def test_tokens(self):
        for tokens in ("-5", "0", "inf", "nan", "300e", "1e999", "many", "3e9x"):
            with self.subTest(tokens):
                first = trireme(*MEGATRON, f"--tokens={tokens}", code=2).splitlines()[0]
                self.assertEqual(first, f"error: --tokens: {tokens} is not a number of tokens: 1 or more, as 300e9")


if __name__ == "__main__":
    unittest.main()
