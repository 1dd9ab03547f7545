"""`trireme plan`: what it prints, writes and refuses, and that `trireme simulate` says the same of its plans."""
# ctest: timeout=300

import json
import os
import shutil
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
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
        self.assertIn("one more GPU", [help["what"] for help in found["would_help"]])

    def test_simulate_says_the_same(self):
        for gpus, more in ((8, []), (4, ["--parallel.pp", "4"]), (6, ["--parallel.tp", "2"])):
            found = planned(*MODEL, "--train.global_batch", 192, *V100, "--gpus", gpus, *more)
            keys = [f"--{key}={str(value).lower() if isinstance(value, bool) else value}"
                    for key, value in found["keys"].items()]
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
            self.assertIn("no plan yet", trireme("simulate", *MODEL, "--parallel.plan", "auto", code=2))

    def test_a_limit_is_kept(self):
        found = planned(*MODEL, *BATCH, *V100, "--gpus", 8, "--memory-limit", "8GB")
        self.assertLessEqual(found["memory_bytes_per_gpu"], 8e9)

    def test_given_keys_stay(self):
        found = planned(*MODEL, *BATCH, *V100, "--gpus", 8, "--parallel.tp", 4, "--train.recompute", "full")
        self.assertEqual(found["layout"]["tp"], 4)
        self.assertEqual(found["keys"]["train.recompute"], "full")


class Words(unittest.TestCase):
    def test_explain(self):
        text = trireme("plan", *MODEL, *BATCH, *V100, "--gpus", 8)
        for words in ("1.32B parameters on 8 x V100", "stage", "█", "bound by", "runners-up", "what more would bring",
                      "one more GPU", "twice the bandwidth"):
            self.assertIn(words, text)

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
                (["--gpus", "8", "--graph", "x.png"], ".svg or .dot"),
                (["--gpus", "8", "--check", "/nonexistent/plan.json"], "plan.json")):
            base = [] if "--cluster" in arguments else V100
            result = subprocess.run([TRIREME, "plan", *MODEL, *base, *arguments], capture_output=True, text=True)
            self.assertNotEqual(result.returncode, 0, arguments)
            self.assertIn(words, result.stderr, arguments)
            self.assertTrue(result.stderr.startswith("error: "), result.stderr)


class Files(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.path = Path(self.folder.name)

    def tearDown(self):
        self.folder.cleanup()

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

    def test_the_graph_is_drawn(self):
        svg, dot = self.path / "graph.svg", self.path / "graph.dot"
        for file in (svg, dot):
            trireme("plan", *MODEL, *BATCH, *V100, "--gpus", 4, "--parallel.tp", 2, "--parallel.pp", 2, "--graph", file)
        texts = [node.text or "" for node in xml.etree.ElementTree.parse(svg).getroot().iter() if node.tag.endswith("text")]
        self.assertTrue(any("mlp.down" in text for text in texts))
        self.assertTrue(any("shard(1)" in text for text in texts))
        self.assertTrue(any("stage 1" in text for text in texts))
        self.assertIn("digraph", dot.read_text())
        self.assertIn("attention.qkv", dot.read_text())


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
        done = self.run_in_folder("plan", *self.TINY, "--cluster", "laptop", "--gpus", "2", "--out", "plan.json")
        self.assertEqual(done.returncode, 0, done.stderr)
        layouts = []
        for plan in ("plan.json", "auto"):
            done = self.run_in_folder("train", *self.TINY, *self.SHORT, "--nproc", "2", "--parallel.plan", plan)
            self.assertEqual(done.returncode, 0, done.stderr)
            layouts.append(json.loads(done.stdout)["layout"])
        self.assertEqual(layouts[0], layouts[1])

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
        degrees = ", ".join(f"{axis} {said['keys']['parallel.' + axis]}" for axis in ("dp", "tp", "pp"))
        self.assertTrue(fastest["layout"].startswith(degrees), said["tried"])
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
            checkpoints = sorted(path for path in Path(self.folder).glob("runs/*-*/checkpoints/step-000003"))
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
