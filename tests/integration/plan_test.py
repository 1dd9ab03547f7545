"""`trireme plan`: what it prints, writes and refuses, and that `trireme simulate` says the same of its plans."""
# ctest: timeout=300

import json
import os
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

BIN = os.environ["TRIREME_BIN_DIR"]
TRIREME = os.path.join(BIN, "trireme")
FIELDS = ["step_seconds", "tokens_per_second_per_gpu", "model_tflops_per_gpu", "hardware_tflops_per_gpu",
          "memory_bytes_per_gpu", "bubble_fraction", "fits", "layout", "stages"]
MODEL = ("--model.kind gpt --model.layers 24 --model.hidden 2048 --model.heads 32 --model.seq 1024 "
         "--model.vocab 51200 --precision.compute fp16").split()
BATCH = "--train.global_batch 256".split()
V100 = "--cluster v100-16gb".split()


def trireme(*arguments, code=0):
    result = subprocess.run([TRIREME, *map(str, arguments)], capture_output=True, text=True, timeout=120,
                            env={**os.environ, "COLUMNS": "120"})
    assert result.returncode == code, (arguments, result)
    return result.stdout if code == 0 else result.stdout + result.stderr


def planned(*arguments):
    return json.loads(trireme("plan", *arguments, "--json"))


class Numbers(unittest.TestCase):
    def test_the_promised_fields(self):
        found = planned(*MODEL, *BATCH, *V100, "--gpus", 8)
        self.assertLessEqual(set(FIELDS), set(found))
        self.assertTrue(found["fits"])
        self.assertLessEqual(found["memory_bytes_per_gpu"], found["memory_limit_bytes"])
        layout = found["layout"]
        self.assertEqual(layout["dp"] * layout["tp"] * layout["pp"], 8)
        self.assertTrue(found["stages"][0]["placements"])
        for other in found["runners_up"]:
            self.assertGreaterEqual(other["step_seconds"], 0.994 * found["step_seconds"])
        self.assertIn("one more device", [help["what"] for help in found["would_help"]])

    def test_simulate_says_the_same(self):
        for gpus, more in ((8, []), (4, ["--parallel.pp", "4"]), (6, ["--parallel.tp", "2"])):
            found = planned(*MODEL, "--train.global_batch", 192, *V100, "--gpus", gpus, *more)
            keys = [f"--{key}={str(value).lower() if isinstance(value, bool) else value}"
                    for key, value in found["keys"].items()]
            keys += ["--software", "trireme"]
            again = json.loads(trireme("simulate", *MODEL, *V100, "--gpus", gpus, *keys, "--json"))
            for field in ("step_seconds", "memory_bytes_per_gpu", "bubble_fraction"):
                self.assertAlmostEqual(found[field], again[field], delta=1e-9 * abs(again[field]), msg=(gpus, field))
            name, share = found["binding"].split(": ")
            if name != "memory":
                self.assertTrue(again["binds"].split(",")[0].endswith(share.removesuffix(" of the step")),
                                (found["binding"], again["binds"]))

    def test_simulate_plays_plan_files(self):
        with tempfile.TemporaryDirectory() as folder:
            for flags in [[], ["--uneven"]]:
                file = os.path.join(folder, "plan.json")
                found = planned(*MODEL, *BATCH, *V100, "--gpus", 6 if flags else 8, "--out", file, *flags)
                played = json.loads(trireme("simulate", "--parallel.plan", file, *V100, "--precision.compute", "fp16",
                                            "--json"))
                for field in ["step_seconds", "memory_bytes_per_gpu", "bubble_fraction"]:
                    self.assertAlmostEqual(played[field] / max(found[field], 1e-9), 1 if found[field] else 0, places=4,
                                           msg=field)
                self.assertIn("plan for", trireme("simulate", "--parallel.plan", file, *V100, "--gpus", 3, code=2))
                for given, said in (("--train.global_batch=3", "train.global_batch = 3 is given"),
                                    ("--parallel.zero=3", "parallel.zero = 3 is given"),
                                    ("--model.layers=3", "model.layers"), ("--model=gpt2-355m", "another model")):
                    self.assertIn(said, trireme("simulate", "--parallel.plan", file, *V100, given, code=2))
            self.assertIn("no plan yet", trireme("simulate", *MODEL, "--parallel.plan", "auto", code=2))

    def test_a_limit_is_kept(self):
        found = planned(*MODEL, *BATCH, *V100, "--gpus", 8, "--memory-limit", "8GB")
        self.assertLessEqual(found["memory_bytes_per_gpu"], 8e9)

    def test_given_keys_stay(self):
        found = planned(*MODEL, *BATCH, *V100, "--gpus", 8, "--parallel.tp", 4, "--train.recompute", "full")
        self.assertEqual(found["layout"]["tp"], 4)
        self.assertEqual(found["keys"]["train.recompute"], "full")


class Unsaid(unittest.TestCase):
    """Without a word of the model it is the one that `trireme train` takes."""

    def test_the_model_is_that_of_train(self):
        shown = dict(line.split("#")[0].split(" = ") for line in trireme("train", "--show-config").splitlines()
                     if " = " in line)
        shown = {key: value.strip() for key, value in shown.items()}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "plan.json")
            trireme("plan", "--cluster", "laptop", "--gpus", 2, "--out", file)
            plan = json.loads(file.read_text())
            for key in ("layers", "hidden", "heads", "seq", "vocab"):
                self.assertEqual(str(plan["model"][key]), shown[key], key)
            self.assertEqual(str(plan["keys"]["train.global_batch"]), shown["global_batch"])
            self.assertIn("is a plan for this model", trireme("plan", "--model", "default", "--check", file))
        for command in (["simulate"], ["plan", "--gpus", 2]):
            named, unsaid = (json.loads(trireme(*command, "--cluster", "laptop", "--json", *model))
                             for model in (["--model", "default"], []))
            self.assertEqual(named, unsaid)


class Words(unittest.TestCase):
    def test_explain(self):
        text = trireme("plan", *MODEL, *BATCH, *V100, "--gpus", 8)
        for words in ("1.32B parameters on 8 x V100", "stage", "█", "bound by", "runners-up", "what more would bring",
                      "one more device", "twice the bandwidth"):
            self.assertIn(words, text)

    def test_a_mix_is_explained(self):
        found = planned(*MODEL, *BATCH, "--cluster", "a100-80gb+v100-16gb", "--gpus", 16)
        self.assertNotEqual(found["keys"]["parallel.shares"], "")
        self.assertRegex(found["binding"], r"^(memory|computing|communication|the update|the bubble)")
        self.assertEqual([help["what"] for help in found["would_help"]],
                         ["one more device of each kind", "twice the bandwidth inside hosts",
                          "twice the bandwidth between hosts"])
        self.assertLess(found["would_help"][2]["step_seconds"], found["step_seconds"])

    def test_how_many_devices_would_do(self):
        giant = ("--model.kind gpt --model.layers 128 --model.hidden 25600 --model.heads 160 --model.seq 2048 "
                 "--model.vocab 51200 --precision.compute fp16 --train.global_batch 64").split()
        self.assertRegex(trireme("plan", *giant, *V100, "--gpus", 8, code=1), r"would fit: 2,048 devices \(dp 2, tp 8")

    def test_every_stage_is_drawn(self):
        text = trireme("plan", *MODEL, *BATCH, *V100, "--gpus", 40, "--model.layers", 40, "--parallel.pp", 40,
                       "--parallel.schedule", "1f1b", "--train.micro_batch", 4, "--train.recompute", "full")
        rows = [line for line in text.splitlines() if "·" in line]
        self.assertEqual(len(rows), 12)
        for row in rows:
            self.assertIn("█", row)

    def test_bad_input(self):
        giant = MODEL + ["--model.layers", "96", "--model.hidden", "12288", "--model.heads", "96"]
        text = trireme("plan", *giant, *BATCH, *V100, "--gpus", 8, code=1)
        self.assertIn("fit into no layout of 8 x V100", text)
        self.assertIn("GB more than the 17.2 GB there are", text)
        self.assertIn("would fit: ", text)
        for arguments, words in (
                (["--gpus", "8", "--memory-limit", "lots"], "lots"),
                (["--gpus", "8", "--memory-limit", "1MB"], "fit into no layout"),
                (["--gpus", "7", "--train.global_batch", "3", "--parallel.tp", "1", "--parallel.pp", "1"], "7 devices"),
                (["--gpus", "7", "--cluster", "v100-16gb+a100-80gb"], "7 devices of 2 kinds"),
                (["--gpus", "8", "--check", "/nonexistent/plan.json"], "plan.json")):
            base = [] if "--cluster" in arguments else V100
            result = subprocess.run([TRIREME, "plan", *MODEL, *base, *arguments], capture_output=True, text=True)
            self.assertNotEqual(result.returncode, 0, arguments)
            self.assertIn(words, result.stderr, arguments)
            self.assertTrue(result.stderr.startswith("error: "), result.stderr)

    def test_a_limit_is_for_less_than_a_device_has(self):
        self.assertIn("leaves nothing", trireme("plan", *MODEL, *BATCH, *V100, "--memory-limit", "0GB", code=2))
        text = trireme("plan", *MODEL, *BATCH, *V100, "--memory-limit", "500GB", code=2)
        self.assertIn("more than the 17.2 GB of a device of v100-16gb", text)
        mixed = ["--gpus", 8, "--cluster", "a100-80gb+v100-16gb", "--memory-limit", "60GB"]
        self.assertIn("of a device of v100-16gb", trireme("plan", *MODEL, *BATCH, *mixed, code=2))

    def test_the_key_at_fault_is_named(self):
        line = "(from the command line)"
        for keys, words in ((["--parallel.tp", 3, "--parallel.zero", 1], f"parallel.tp = 3 {line} leaves no layout"),
                            (["--parallel.tp", 64, "--gpus", 64], "model.heads = 32 cannot be split over"),
                            (["--parallel.dp", 5], f"parallel.dp = 5 {line} leaves no layout for 8 devices"),
                            (["--parallel.pp", 64, "--gpus", 64], "26 layers to cut between"),
                            (["--parallel.ep", 2], f"parallel.ep = 2 {line}: the planner plans no experts"),
                            (["--train.micro_batch", 3, "--train.recompute", "full"],
                             f"train.micro_batch = 3 {line} leaves no layout for 8 devices: it does not divide "
                             "train.global_batch = 256"),
                            (["--parallel.dp", 2, "--parallel.tp", 2, "--parallel.pp", 1, "--parallel.zero", 1],
                             f"parallel.dp = 2 {line}, parallel.tp = 2 {line} and parallel.pp = 1 {line} together"),
                            (["--parallel.shares", "3,1,1,1"], f"parallel.shares = \"3,1,1,1\" {line}: the planner"),
                            (["--model.hidden", 100, "--model.heads", 3],
                             f"model.hidden = 100 {line} cannot be split over model.heads = 3 {line}")):
            with self.subTest(keys):
                gpus = [] if "--gpus" in keys else ["--gpus", 8]
                self.assertIn(words, trireme("plan", *MODEL, *BATCH, *V100, *gpus, *keys, code=2))
        # With 7 devices stages of different shapes are looked for, which takes long and cannot help here.
        self.assertIn("train.micro_batch = 3", trireme("plan", *MODEL, *BATCH, *V100, "--gpus", 7, "--train.micro_batch",
                                                       3, code=2))
        self.assertIn("a batch of 3 has not a sample", trireme(
            "plan", "--model.layers", 2, "--model.heads", 1, "--train.global_batch", 3, "--gpus", 8, code=2))

    def test_the_cluster_at_fault_is_named(self):
        for cluster, words in (("h100-80gb+laptop", "laptop has no network between hosts"),
                               ("a100-80gb+", "a name is missing beside a +"),
                               ("a100-80gb++v100-16gb", "a name is missing beside a +")):
            for command in ("plan", "simulate"):
                self.assertIn(words, trireme(command, *MODEL, "--gpus", 8, "--cluster", cluster, code=2))


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

    def test_files_are_checked_before_the_search(self):
        # A model that fits nowhere would be refused by the search.
        giant = ["--model.layers", 96, "--model.hidden", 12288, "--model.heads", 96, "--gpus", 1]
        for flags, words in ((["--out", "/nonexistent/x.json"], "--out /nonexistent/x.json: cannot write"),
                             (["--out", self.path], "that is a folder")):
            with self.subTest(words):
                self.assertIn(words, trireme("plan", *giant, *flags, code=2))

    def test_a_plan_is_written_and_checked(self):
        file = self.path / "plan.json"
        trireme("plan", *MODEL, *BATCH, *V100, "--gpus", 4, "--parallel.pp", 2, "--out", file)
        plan = json.loads(file.read_text())
        self.assertEqual(plan["world_size"], 4)
        self.assertIn("is a plan for this model", trireme("plan", *MODEL, *BATCH, "--gpus", 4, "--check", file))
        self.assertIn("for 4 workers, and there are 8", trireme("plan", *MODEL, *BATCH, "--gpus", 8, "--check", file, code=2))
        other = [word if word != "24" else "25" for word in MODEL]
        self.assertIn("model.layers = 24 there, 25 here", trireme("plan", *other, *BATCH, "--check", file, code=2))
        plan["stages"][1]["layers"] = "20-25"
        file.write_text(json.dumps(plan))
        self.assertIn("have no stage", trireme("plan", *MODEL, *BATCH, "--check", file, code=2))

    def test_a_broken_plan_is_refused(self):
        file = self.path / "plan.json"
        trireme("plan", *MODEL, *BATCH, *V100, "--gpus", 8, "--parallel.pp", 2, "--parallel.schedule", "interleaved",
                "--out", file)
        good = json.loads(file.read_text())
        self.assertIn("is a plan for this model", trireme("plan", *MODEL, *BATCH, "--check", file))
        edits = [("parallel.zero", 7), ("parallel.zero", -1), ("train.micro_batch", 0), ("train.micro_batch", 3),
                 ("parallel.schedule", "foo"), ("parallel.interleave", 4), ("parallel.interleave", 1000),
                 ("train.recompute", "foo"), ("train.recompute", "0-1000"), ("compression.method", "bogus"),
                 ("parallel.shares", "1,1"), ("train.leaves", -1), ("parallel.ep", 0)]
        for key, value in edits:
            with self.subTest(key, value=value):
                plan = json.loads(json.dumps(good))
                self.assertNotEqual(plan["keys"][key], value)
                plan["keys"][key] = value
                file.write_text(json.dumps(plan))
                self.assertIn(key, trireme("plan", *MODEL, *BATCH, "--check", file, code=2))
        weight = "layers.*.mlp.up.weight"
        for change, words in ((lambda plan: plan.update(cluster="nope"), "a cluster \"nope\""),
                              (lambda plan: plan["predicted"].update(step_seconds=-1.0), "step_seconds"),
                              (lambda plan: plan["predicted"].update(step_seconds=0), "step_seconds"),
                              (lambda plan: plan["stages"][0]["placements"].update({weight: "[shard(7), banana]"}),
                               "banana"),
                              (lambda plan: plan["stages"][0]["placements"].update({weight: "[shard(7), replicate]"}),
                               "2 dimensions"),
                              (lambda plan: plan["stages"][0]["placements"].update({weight: "shard(0)"}), weight),
                              (lambda plan: plan["stages"][0]["placements"].update({"no.weight": "[R, R]"}),
                               "no such weight")):
            with self.subTest(words):
                plan = json.loads(json.dumps(good))
                change(plan)
                file.write_text(json.dumps(plan))
                self.assertIn(words, trireme("plan", *MODEL, *BATCH, "--check", file, code=2))

    def test_a_check_as_json(self):
        file = self.path / "plan.json"
        trireme("plan", *MODEL, *BATCH, *V100, "--gpus", 8, "--out", file)
        check = ["plan", *MODEL, *BATCH, "--json", "--check", file]
        said = json.loads(trireme(*check))
        self.assertEqual((said["plan"], said["fits_this_model"], said["gpus"]), (str(file), True, 8))
        self.assertEqual((said["trains"], said["why_not"]), (True, None))
        self.assertEqual(json.loads(trireme(*check, *V100))["cluster"], "v100-16gb")
        for more, words in ((["--gpus", "4"], "8 workers, and there are 4"), (["--cluster", "a100-80gb"], "a100-80gb")):
            result = subprocess.run([TRIREME, *map(str, check), *more], capture_output=True, text=True)
            self.assertEqual(result.returncode, 2, result)
            said = json.loads(result.stdout)
            self.assertEqual(said["fits_this_model"], False)
            self.assertIn(words, said["why_not"])

    def test_what_the_trainer_cannot_run_yet_is_a_plan(self):
        file = self.path / "plan.json"
        keys = ["--parallel.cp", "2"]
        trireme("plan", *MODEL, *BATCH, *V100, *keys, "--gpus", 8, "--out", file)
        said = json.loads(trireme("plan", *MODEL, *BATCH, *keys, "--json", "--check", file))
        self.assertTrue(said["fits_this_model"])
        self.assertFalse(said["trains"])
        self.assertIn("context parallelism", said["why_not"])

    def test_what_is_not_cut_is_not_called_so(self):
        file = self.path / "plan.json"
        trireme("plan", *MODEL, *BATCH, *V100, "--gpus", 4, "--parallel.tp", 1, "--out", file)
        for stage in json.loads(file.read_text())["stages"]:
            self.assertEqual(set(stage["placements"].values()), {"[replicate, replicate]"})


class Edited(unittest.TestCase):
    """Plans that somebody has changed, and what is given beside them."""

    CHECK = ["plan", *MODEL, *BATCH, "--check"]
    LAPTOP = ["--model", "default", "--cluster", "laptop", "--gpus", 2]

    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = Path(self.folder.name, "plan.json")

    def plan(self, *arguments):
        trireme("plan", *arguments, "--out", self.file)
        return json.loads(self.file.read_text())

    def write(self, plan):
        self.file.write_text(json.dumps(plan))

    def train(self, *words, code=0):
        """What `trireme train` says before it starts."""
        done = subprocess.run([TRIREME, "train", "--show-config", "--parallel.plan", self.file, "--nproc", "2",
                               *map(str, words)], capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, code, done)
        return done.stderr

    def test_placements_that_the_trainer_does_not_execute(self):
        plan = self.plan(*self.LAPTOP, "--parallel.dp", 2)
        plan["stages"][0]["placements"]["embedding.token.weight"] = "[shard(0), replicate]"
        self.write(plan)
        for text in (trireme("plan", "--model", "default", "--check", self.file, code=2), self.train(code=2),
                     trireme("simulate", "--parallel.plan", self.file, code=2)):
            self.assertIn("stage 0 of the plan has a placement of embedding.token.weight, [shard(0), replicate], and "
                          "with dp 2 and tp 1 the trainer has it as [replicate, replicate]", text)
            self.assertIn("--parallel.tp", text)
        plan = self.plan(*MODEL, *BATCH, *V100, "--gpus", 4, "--parallel.tp", 2, "--parallel.pp", 2)
        for stage in plan["stages"]:
            for weight, where in stage["placements"].items():
                self.assertIn("[replicate, ", where)
                stage["placements"][weight] = "[shard(0), shard(1)]"
        self.write(plan)
        self.assertIn("[shard(0), shard(1)], and with dp 1 and tp 2", trireme(*self.CHECK, self.file, code=2))
        for stage in plan["stages"]:
            stage["placements"] = {}
        self.write(plan)
        self.assertIn("is a plan for this model", trireme(*self.CHECK, self.file))

    def test_placements_of_every_model(self):
        gpt = "--model.kind gpt2 --model.layers 4 --model.hidden 256 --model.heads 4 --model.seq 64".split()
        llama = ("--model.kind llama --model.layers 2 --model.hidden 256 --model.heads 8 --model.kv_heads 2 "
                 "--model.ffn 704 --model.seq 64").split()
        mlp = "--model.kind mlp --model.layers 5 --model.hidden 512".split()
        for model in ([*gpt, "--model.vocab", 50257], [*gpt, "--model.tied", "true"], llama, mlp,
                      ["--model.kind", "resnet"]):
            for layout in (["--gpus", 4], ["--gpus", 4, "--parallel.tp", 2]):
                with self.subTest(model=model, layout=layout):
                    words = [*model, "--train.global_batch", 16]
                    done = subprocess.run([TRIREME, "plan", *map(str, [*words, *V100, *layout, "--out", self.file])],
                                          capture_output=True, text=True)
                    if done.returncode == 2 and "resnet" in model:
                        continue  # which is not cut
                    self.assertEqual(done.returncode, 0, done)
                    self.assertIn("is a plan for this model", trireme("plan", *words, "--check", self.file))

    def test_memory(self):
        plan = self.plan(*MODEL, *BATCH, *V100, "--gpus", 8)
        said = json.loads(trireme(*self.CHECK, self.file, "--json"))
        self.assertTrue(said["fits"])
        self.assertAlmostEqual(said["memory_bytes_per_gpu"] / plan["predicted"]["memory_bytes_per_gpu"], 1)
        self.assertAlmostEqual(said["step_seconds"] / plan["predicted"]["step_seconds"], 1)
        self.assertIn("of 17.2 GB a device", trireme(*self.CHECK, self.file))
        text = trireme(*self.CHECK, self.file, "--memory-limit", "4GB", code=2)
        self.assertRegex(text, r"does not fit: in float16 it needs [\d.]+ GB a device, [\d.]+ GB more than the 4.0 GB of "
                               r"--memory-limit")
        self.assertIn("leaves nothing", trireme(*self.CHECK, self.file, "--memory-limit", "0GB", code=2))
        plan["keys"].update({"parallel.zero": 0, "train.micro_batch": 32, "train.recompute": "none"})
        self.write(plan)
        result = subprocess.run([TRIREME, *map(str, [*self.CHECK, self.file, "--json"])], capture_output=True, text=True)
        self.assertEqual(result.returncode, 2, result)
        said = json.loads(result.stdout)
        self.assertEqual((said["fits_this_model"], said["fits"], said["trains"]), (True, False, False))
        self.assertGreater(said["memory_bytes_per_gpu"], said["memory_limit_bytes"])
        self.assertIn("more than the 17.2 GB of V100", said["why_not"])
        self.assertIn("plan anew", result.stderr)

    def test_a_cluster_file_that_is_elsewhere(self):
        cluster = Path(self.folder.name, "mine.json")
        cluster.write_text(json.dumps({"preset": "v100-16gb"}))
        self.plan(*MODEL, *BATCH, "--cluster", cluster, "--gpus", 8)
        play = ["simulate", "--parallel.plan", self.file, "--precision.compute", "fp16", "--json"]
        self.assertEqual(json.loads(trireme(*play))["cluster"], str(cluster))
        self.assertTrue(json.loads(trireme(*self.CHECK, self.file, "--json"))["fits"])
        cluster.unlink()
        said = json.loads(trireme(*self.CHECK, self.file, "--json"))
        self.assertEqual((said["fits_this_model"], said["fits"], said["memory_bytes_per_gpu"]), (True, None, None))
        self.assertIn("memory is not checked", trireme(*self.CHECK, self.file))
        for text in (trireme(*play, code=2), trireme(*self.CHECK, self.file, "--memory-limit", "4GB", code=2)):
            self.assertIn("mine.json, which is neither known nor a file here", text)
            self.assertIn("give --cluster", text)

    def test_given_keys_that_the_plan_contradicts(self):
        plan = self.plan(*self.LAPTOP, "--parallel.dp", 2, "--train.micro_batch", 8)
        for given, here, there in (("parallel.tp", 2, 1), ("train.micro_batch", 4, 8), ("parallel.zero", 2, None)):
            there = plan["keys"][given] if there is None else there
            words = [f"--{given}", here]
            for text in (self.train(*words, code=2),
                         trireme("plan", "--model", "default", "--check", self.file, *words, code=2),
                         trireme("simulate", "--parallel.plan", self.file, *words, code=2)):
                self.assertIn(f"{given} = {here} is given, but {self.file} is a plan with {there}", text)
        toml = Path(self.folder.name, "my.toml")
        toml.write_text("[parallel]\ntp = 2\n")
        self.assertIn("parallel.tp = 2 is given", self.train(toml, "--model", "default", code=2))
        for words in ([], ["--parallel.dp", -1], ["--parallel.dp", 2], ["--train.micro_batch", 8]):
            self.assertIn("dp 2", self.train(*words))
            trireme("plan", "--model", "default", "--check", self.file, *words)

    def test_what_was_edited_is_predicted_anew(self):
        plan = self.plan(*self.LAPTOP, "--parallel.dp", 2, "--train.micro_batch", 8)
        before = self.train()
        plan["keys"]["train.micro_batch"] = 1
        after = set()
        for stale in (1234.5, 77.7):
            plan["predicted"]["step_seconds"] = stale
            self.write(plan)
            after.add(self.train())
        self.assertEqual(len(after), 1, after)  # whatever the file says
        self.assertIn("micro-batches of 1 · predicted ", *after)
        self.assertNotEqual(before.split("predicted ")[1], after.pop().split("predicted ")[1])
        said = json.loads(trireme("plan", "--model", "default", "--check", self.file, "--json"))
        played = json.loads(trireme("simulate", "--parallel.plan", self.file, "--json"))
        self.assertLess(said["step_seconds"], 1000)
        for field in ("step_seconds", "memory_bytes_per_gpu", "memory_limit_bytes", "fits"):
            self.assertEqual(said[field], played[field])

    def test_simulate_takes_the_cluster_of_the_plan(self):
        plan = self.plan(*self.LAPTOP)
        played = json.loads(trireme("simulate", "--parallel.plan", self.file, "--json"))
        self.assertEqual(played["cluster"], "laptop")
        self.assertAlmostEqual(played["step_seconds"] / plan["predicted"]["step_seconds"], 1)
        other = json.loads(trireme("simulate", "--parallel.plan", self.file, "--cluster", "h100-80gb", "--json"))
        self.assertEqual(other["cluster"], "h100-80gb")
        plan["cluster"] = "my-name"
        self.write(plan)
        self.assertIn("for the cluster my-name, which is neither known nor a file here",
                      trireme("simulate", "--parallel.plan", self.file, code=2))
        self.assertIn("not predicted: the plan is for the cluster my-name", self.train())

    def test_files_that_cannot_be_read(self):
        lost = Path(self.folder.name, "lost.json")
        for command in (["plan", "--check", lost], ["simulate", "--parallel.plan", lost],
                        ["train", "--show-config", "--parallel.plan", lost]):
            text = trireme(*command, code=2)
            self.assertIn(str(lost), text)
            self.assertIn("trireme plan --out", text)
        self.file.write_text('{\n  "format": "trireme plan 1"\n  "world_size": 2\n}\n')
        where = "line 3, column 3: a ',' or a '}' is expected"
        for command in (["plan", "--check", self.file], ["simulate", "--cluster", self.file]):
            text = trireme(*command, code=2)
            self.assertIn(where, text)
            self.assertIn(str(self.file), text)
            self.assertNotIn("json.exception", text)

    def test_compression_that_the_trainer_refuses(self):
        why = "the trainer does not compress gradients with precision.compute = \"float16\""
        asked = ["plan", *MODEL, *BATCH, *V100, "--gpus", 8]
        self.assertIn("compression is not considered: " + why, trireme(*asked, "--compress"))
        self.assertIn(why, planned(*asked[1:], "--compress")["note"])
        self.assertNotIn(why, trireme(*asked))
        played = ["simulate", *MODEL, *BATCH, *V100, "--gpus", 8]
        self.assertIn("note: " + why, trireme(*played, "--compression.method", "powersgd"))
        self.assertIsNone(json.loads(trireme(*played, "--json"))["note"])
        other = [*played, "--compression.method", "powersgd", "--precision.compute", "fp32", "--json"]
        self.assertIsNone(json.loads(trireme(*other))["note"])


@unittest.skipUnless(os.path.exists(os.path.join(BIN, "trireme-tensor")), "built without libtorch")
class InTraining(unittest.TestCase):
    TINY = ["--model", "gpt2-tiny", "--model.layers=2", "--model.hidden=32", "--model.heads=4", "--model.seq=16",
            "--train.global_batch=8", "--data.generated_size=20000"]
    SHORT = ["--train.steps=3", "--optimizer.warmup_steps=0", "--observe.tensorboard=false", "--json"]

    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="trireme-plan-")
        self.addCleanup(shutil.rmtree, self.folder)

    def run_in_folder(self, *words, environment={}):
        return subprocess.run([TRIREME, *words], capture_output=True, text=True, timeout=120, cwd=self.folder,
                              env={**os.environ, **environment})

    def test_a_plan_is_run_and_so_is_auto(self):
        done = self.run_in_folder("plan", *self.TINY, "--cluster", "this", "--gpus", "2", "--out", "plan.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        layouts = []
        for plan in ("plan.json", "auto"):
            done = self.run_in_folder("train", *self.TINY, *self.SHORT, "--nproc", "2", "--parallel.plan", plan)
            self.assertEqual(done.returncode, 0, done.stderr)
            trained = json.loads(done.stdout)
            layouts.append(trained["layout"])
            self.assertGreater(trained["predicted_step_ms"], 0)
            self.assertGreater(trained["predicted_memory_bytes"], 0)
        self.assertEqual(layouts[0], layouts[1])

    def test_predicted_stands_beside_measured(self):
        words = ["train", *self.TINY, *self.SHORT[:-1], "--nproc", "2"]
        done = self.run_in_folder(*words, "--parallel.plan", "auto")
        self.assertEqual(done.returncode, 0, done.stderr)
        line = r"predicted   [0-9.]+ ms a step \([+-][0-9.]+ %\), [0-9.]+ .iB a worker \([+-][0-9.]+ %\)"
        self.assertRegex(done.stdout, line)
        [report] = Path(self.folder).glob("runs/[!.]*-1/report.html")
        self.assertIn("predicted", report.read_text())
        self.assertNotRegex(self.run_in_folder(*words).stdout, "predicted")

    def test_stages_of_different_shapes_are_planned_and_run(self):
        model = ["--model", "gpt2-tiny", "--model.layers=4", "--model.hidden=64", "--model.heads=4", "--model.seq=32",
                 "--train.global_batch=16", "--data.generated_size=20000"]
        done = self.run_in_folder("plan", *model, "--cluster", "laptop", "--gpus", "3", "--uneven", "--out", "plan.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        keys = json.loads(Path(self.folder, "plan.json").read_text())["keys"]
        self.assertEqual(keys["parallel.stages"], "2x1,1x1")
        losses = []
        for layout in (["--nproc", "3", "--parallel.plan", "plan.json"],
                       ["--nproc", "1", f"--train.micro_batch={keys['train.micro_batch']}",
                        f"--train.leaves={keys['train.leaves']}"]):
            done = self.run_in_folder("train", *model, *self.SHORT, *layout)
            self.assertEqual(done.returncode, 0, done.stderr)
            losses.append(json.loads(done.stdout)["final_loss"])
        self.assertEqual(losses[0], losses[1])

    def test_given_keys_stay(self):
        done = self.run_in_folder("train", *self.TINY, *self.SHORT, "--nproc", "2", "--parallel.plan", "auto",
                                  "--parallel.pp=2")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("pp=2", json.loads(done.stdout)["layout"])

    def test_the_fastest_of_those_tried_is_taken(self):
        done = self.run_in_folder("plan", *self.TINY, "--cluster", "laptop", "--gpus", "2", "--try", "2", "--json",
                                  "--out", "plan.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = json.loads(done.stdout)
        self.assertEqual(len({trial["layout"] for trial in said["tried"]}), 2)
        fastest = min(said["tried"], key=lambda trial: trial["measured_seconds"])
        self.assertAlmostEqual(said["step_seconds"], fastest["predicted_seconds"])
        degrees = [f"{axis} {said['keys']['parallel.' + axis]}" for axis in ("dp", "tp", "pp")]
        named = [part.replace(" with sequences", "").split(" (")[0] for part in fastest["layout"].split(", ")]
        self.assertEqual(named[:3], degrees, said["tried"])
        done = self.run_in_folder("train", *self.TINY, *self.SHORT, "--nproc", "2", "--parallel.plan", "try")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("loss", json.loads(done.stdout))

    def test_what_cannot_be_tried_here_is_refused(self):
        done = self.run_in_folder("plan", *self.TINY, "--gpus", "2", "--try", "2", "--cluster", "h100-80gb")
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("--try trains on this machine", done.stderr)
        environment = {"RANK": "0", "WORLD_SIZE": "2", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "2",
                       "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "1"}
        done = self.run_in_folder("train", *self.TINY, *self.SHORT, "--parallel.plan", "try", environment=environment)
        self.assertEqual(done.returncode, 2, done.stderr)
        self.assertIn("trains before the workers start", done.stderr)

    def test_only_early_stages_compute_again(self):
        model = ["--model", "gpt2-tiny", "--model.layers=8", "--model.hidden=128", "--model.heads=4",
                 "--model.seq=128", "--train.global_batch=16", "--data.generated_size=20000"]
        given = ["--parallel.pp=4", "--parallel.dp=1", "--parallel.schedule=1f1b", "--train.micro_batch=2"]
        for megabytes in range(44, 12, -2):  # less and less
            done = self.run_in_folder("plan", *model, *given, "--cluster", "laptop", "--gpus", "4", "--out",
                                      "plan.json", "--memory-limit", f"{megabytes}MB")
            self.assertEqual(done.returncode, 0, done.stderr)
            if "again" in done.stdout:
                break
        self.assertRegex(done.stdout, r"pp 4 .*, blocks 0-\d+ recomputed\n")
        self.assertRegex(done.stdout, r"\n +0 .* again\n")
        self.assertRegex(done.stdout, r"\n +3 .* kept\n")
        plan = json.loads(Path(self.folder, "plan.json").read_text())
        plan["keys"]["train.recompute"] = "none"
        Path(self.folder, "kept.json").write_text(json.dumps(plan))
        checkpoints = []
        for file in ("plan.json", "kept.json"):
            done = self.run_in_folder("train", *model, *self.SHORT, "--nproc", "4", "--parallel.plan", file)
            self.assertEqual(done.returncode, 0, done.stderr)
            checkpoints = sorted(path for path in Path(self.folder).glob("runs/[!.]*-*/checkpoints/step-000003"))
        self.assertEqual(len(checkpoints), 2)
        done = self.run_in_folder("checkpoint", "diff", *map(str, checkpoints))
        self.assertIn("bit for bit", done.stdout)

    def test_a_plan_for_others_is_refused(self):
        self.run_in_folder("plan", *self.TINY, "--cluster", "laptop", "--gpus", "2", "--out", "plan.json")
        for words, sentence in [(["--nproc", "3"], "the plan is for 2 workers, and there are 3"),
                                (["--nproc", "2", "--model.layers=3"], "the plan is for another model"),
                                (["--nproc", "2", "--parallel.plan", "no.json"], "no.json")]:
            done = self.run_in_folder("train", *self.TINY, *self.SHORT, "--parallel.plan", "plan.json", *words)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn(sentence, done.stderr)


if __name__ == "__main__":
    unittest.main()
