#!/usr/bin/env python3
# ctest: timeout=900
"""The example examples/own_model, built against an installed Trireme: a U-Net with skips, BatchNorm and dropout trains the
same bits over any layout, and libraries that cannot be are refused in clear words."""
import json
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(SOURCE, "tests", "integration"))
import layouts  # noqa: E402

PLACE = tempfile.mkdtemp(prefix="trireme-own-model-")
LIBRARY = os.path.join(PLACE, "build", "libunet.so")
UNET = ["--model.library", LIBRARY, "--model.kind=unet", "--model.unet.width=4", "--model.unet.pictures=64",
        "--train.global_batch=8", "--train.micro_batch=1", "--train.leaves=8", "--train.eval_batches=2",
        "--optimizer.lr=0.01", "--observe.tensorboard=false"]

# Models that are refused, or that show what the trainer does with them.
ODD = """
#include <trireme/torch.h>

using trireme::Field;

struct Odd : trireme::Model {
  Odd() { add_layer("linear", torch::nn::Linear(2, 2)); }
};

struct Samples : trireme::Dataset {
  explicit Samples(bool targets) : targets_(targets) {}
  int64_t size() const override { return 8; }
  trireme::SampleShape shape() const override {
    std::vector<Field> targets;
    if (targets_) targets = {{Field::Type::kInt64, {}}};
    return {{{Field::Type::kFloat, {2}}}, targets};
  }
  void read_sample(int64_t, const trireme::SampleSlot&) const override {}
  bool targets_;
};

TRIREME_MODEL_LIBRARY(library) {
  const auto make = [](const trireme::ModelConfig&) { return std::make_shared<Odd>(); };
  const auto open = [](bool targets) {
    return [targets](const trireme::Config&) {
      return trireme::OpenedData{.train = std::make_shared<Samples>(targets)};
    };
  };
  library.add("plain", "nothing odd", {{"dropout", 0.1, "not used"}}, make, open(true));
  library.add("no_targets", "samples without targets", {}, make, open(false));
}
"""

OTHER = """
#include <stdexcept>
#include <string>
{0}
extern "C" const char* trireme_library_stamp() {{ return "{1}"; }}
"""


def must(*command):
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")


def setUpModule():
    if not os.path.exists(os.path.join(layouts.BIN, "trireme-tensor")):
        return
    installed = os.path.join(PLACE, "installed")
    must("cmake", "--install", os.environ["TRIREME_BUILD_DIR"], "--prefix", installed)
    must("cmake", "-S", os.path.join(SOURCE, "examples", "own_model"), "-B", os.path.join(PLACE, "build"), "-G", "Ninja",
         "-DCMAKE_BUILD_TYPE=Release", f"-DCMAKE_PREFIX_PATH={installed}")
    must("cmake", "--build", os.path.join(PLACE, "build"))
    layouts.TRIREME = os.path.join(installed, "bin", "trireme")
    odd = os.path.join(PLACE, "odd")
    os.mkdir(odd)
    with open(os.path.join(odd, "odd.cpp"), "w") as file:
        file.write(ODD)
    with open(os.path.join(odd, "CMakeLists.txt"), "w") as file:
        file.write("""cmake_minimum_required(VERSION 3.25)
project(Odd LANGUAGES CXX)
find_package(Trireme 0.2 REQUIRED)
add_library(odd SHARED odd.cpp)
target_link_libraries(odd PRIVATE Trireme::torch)
""")
    must("cmake", "-S", odd, "-B", odd + "/build", "-G", "Ninja", f"-DCMAKE_PREFIX_PATH={installed}")
    must("cmake", "--build", odd + "/build")


def tearDownModule():
    shutil.rmtree(PLACE)


class OwnModelTest(layouts.LayoutTest):
    SMALL = UNET
    STEPS = 6

    def test_every_layout_trains_the_same_bits(self):
        whole = self.train("whole", "dp=1")
        for number, (layout, more) in enumerate([
                ("dp=2", []), ("dp=4", []), ("dp=2,zero=1", []), ("dp=2,zero=2", []), ("dp=2,zero=3", []),
                ("dp=1,pp=2", []), ("dp=1,pp=3,schedule=zb-h1", []), ("dp=2,pp=2,schedule=gpipe", []),
                ("dp=1,pp=2,schedule=interleaved,interleave=2", []), ("dp=2,pp=2,zero=3", []),
                ("dp=1,pp=4,split=1+3+2+2", ["--train.recompute=full"]), ("dp=2", ["--train.recompute=full"]),
                ("dp=2,aggregation=server", [])]):
            with self.subTest(layout=layout, more=more):
                name = f"run-{number}"
                result = self.train(name, layout, *more)
                for key in ("final_loss", "held_out_loss", "held_out_accuracy", "parameters"):
                    self.assertEqual(result[key], whole[key], key)
                self.assert_same_bits("whole", name)

    def test_other_numbers_learn_too(self):
        whole = self.train("whole", "dp=1", steps=20)["held_out_loss"]
        for number, (layout, more) in enumerate([
                ("dp=1,tp=2", []), ("dp=2,tp=2,pp=2", []), ("dp=2", ["--precision.compute=bfloat16"]),
                ("dp=2", ["--compression.method=topk", "--compression.density=0.2"]),
                ("dp=2", ["--local.method=average", "--local.every=5"])]):
            with self.subTest(layout=layout, more=more):
                loss = self.train(f"other-{number}", layout, *more, steps=20)["held_out_loss"]
                self.assertLess(abs(loss - whole), 0.01 if "tp" in layout else 0.15)

    def test_goes_on_in_another_layout(self):
        self.train("whole", "dp=2")
        for number, (first, then) in enumerate([("dp=2,zero=3", "dp=1,pp=2"), ("dp=1,pp=3", "dp=4,zero=1")]):
            with self.subTest(first=first, then=then):
                name = f"part-{number}"
                self.train(name, first, steps=3)
                self.resume(name, then)
                self.assert_same_bits("whole", name)

    def test_commands_know_it(self):
        self.train("run", "dp=2")
        for a, b in [("dp=1", "dp=2,pp=2"), ("dp=2", "dp=4,zero=3")]:
            verdict = self.run_json("verify", "--a", a, "--b", b, "--steps", "2", *UNET)
            self.assertEqual(verdict["verdict"], "equal", verdict)
        self.assertIn("down1.block.first.weight", self.said("checkpoint", "inspect", "run"))
        self.train("traced", "dp=2,pp=2", "--observe.trace_steps=2")
        self.assertIn("measured bubble", self.said("trace", "traced"))
        shown = self.said("train", *UNET, "--show-config")
        self.assertRegex(shown, r"\[model\.unet\]\nwidth = 4 +# command line\ndropout = 0\.1 +# default")
        with open(os.path.join(self.folder, "mine.toml"), "w") as file:
            file.write(shown)
        self.assertEqual(self.said("train", "mine.toml", "--show-config").replace("mine.toml", ""),
                         self.said("train", "mine.toml", "--show-config").replace("mine.toml", ""))
        self.assertRegex(self.said("train", "mine.toml", "--show-config"), r"width = 4 +# mine\.toml:\d+")

    def said(self, *arguments):
        done = layouts.run(*arguments, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        return done.stdout

    def assert_refused(self, words, *sentences, code=None, without=()):
        done = layouts.run("train", *words, cwd=self.folder)
        said = done.stdout + done.stderr
        self.assertNotEqual(done.returncode, 0, said)
        if code is not None:
            self.assertEqual(done.returncode, code, said)
        for sentence in sentences:
            self.assertIn(sentence, said)
        for sentence in without:
            self.assertNotIn(sentence, said)

    def test_keys_are_checked(self):
        self.assert_refused([*UNET, "--model.unet.widht=4"], "did you mean model.unet.width?")
        self.assert_refused([*UNET, "--model.unet.width=0"], "model.unet.width = 0", "a whole number from 1 to 512")
        self.assert_refused([*UNET, "--model.unet.dropout=many"], "a number from 0 to 0.9")
        self.assert_refused([*UNET, "--model.kind=unit"], 'did you mean "unet"?')
        self.assert_refused([*UNET, "--parallel.dp=1", "--parallel.pp=9"], "the model has 8 layers to cut between")
        done = layouts.run("simulate", *UNET, cwd=self.folder)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("know the built-in kinds alone", done.stdout + done.stderr)

    def odd(self, kind, *more):
        return ["--model.library", os.path.join(PLACE, "odd", "build", "libodd.so"), f"--model.kind={kind}",
                "--train.global_batch=4", "--train.micro_batch=2", "--train.steps=1", *more]

    def test_what_does_not_count_is_refused(self):
        self.assert_refused(self.odd("plain", "--model.dropout=0.5"),
                            "model.dropout = 0.5 (from the command line) has no effect on model.kind = plain",
                            "did you mean model.plain.dropout?", code=2)
        self.assert_refused(self.odd("plain", "--model.sync_statistics"), "has no effect on model.kind = plain")
        self.assert_refused(self.odd("no_targets"), "a sample needs at least one target", "repeat an input as a target")

    def compile_library(self, name, before="", stamp="Trireme 0.2.0, libtorch 2", links=()):
        source, library = os.path.join(self.folder, name + ".cpp"), os.path.join(self.folder, "lib" + name + ".so")
        with open(source, "w") as file:
            file.write(OTHER.format(before, stamp))
        must("c++", "-shared", "-fPIC", source, "-o", library, *links)
        return ["--model.library", library, "--model.kind=mine"]

    def test_libraries_that_cannot_be(self):
        self.assert_refused(["--model.library", "nowhere.so", "--model.kind=mine"], "there is no such file")
        text = os.path.join(self.folder, "text.so")
        with open(text, "w") as file:
            file.write("no library")
        self.assert_refused(["--model.library", text, "--model.kind=mine"],
                            f"model.library = {text}: it is not a shared library (file too short)", "add_library",
                            without=["build it again"])
        self.assert_refused(self.compile_library("older", stamp="Trireme 0.1.7, libtorch 2.0"),
                            "it was built for Trireme 0.1.7, libtorch 2.0", "this is Trireme", "build it again")
        thrower = 'static int fails = (throw std::runtime_error("the licence has run out"), 0);'
        self.assert_refused(self.compile_library("thrower", thrower), "throws while it is opened",
                            "the licence has run out", "static object", without=["build it again"])
        crasher = "static int fails = *(volatile int*)8;"
        self.assert_refused(self.compile_library("crasher", crasher), "ends in signal 11", "static object",
                            without=["build it again"])
        self.assert_refused(self.compile_library("empty"), "it has no TRIREME_MODEL_LIBRARY", "library.add(",
                            without=["build it again"])
        needy = "namespace tools { int scale(const std::string&); }\nint used() { return tools::scale(std::string()); }"
        self.assert_refused(self.compile_library("needy", needy), "no library that it links defines tools::scale(",
                            "target_link_libraries", without=["build it again", "_ZN"])
        self.compile_library("tools", "int scale() { return 2; }")
        needs = self.compile_library("needs", "int scale();\nint used() { return scale(); }",
                                     links=["-L" + self.folder, "-ltools"])
        self.assert_refused(needs, "libtools.so: cannot open shared object file", "ldd", "LD_LIBRARY_PATH",
                            without=["build it again"])


if __name__ == "__main__":
    unittest.main()
