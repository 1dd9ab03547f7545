"""Weights that go out in the names of Hugging Face and come back are the same bytes."""
# ctest: timeout=120

import json
import os
import shutil
import struct
import subprocess
import tempfile
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "SLURM_"))}


def read_safetensors(path):
    """Name to (type, shape, bytes)."""
    with open(path, "rb") as file:
        data = file.read()
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + length])
    header.pop("__metadata__", None)
    body = data[8 + length:]
    return {name: (entry["dtype"], entry["shape"], body[slice(*entry["data_offsets"])]) for name, entry in
            header.items()}


@unittest.skipUnless(os.path.exists(os.path.join(BIN, "trireme-tensor")), "built without libtorch")
class RoundTrip(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.mkdtemp(prefix="trireme-hf-")
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def run_trireme(self, *arguments):
        result = subprocess.run([os.path.join(BIN, "trireme"), *arguments], capture_output=True, text=True, timeout=60,
                                cwd=self.folder, env=ENVIRONMENT)
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        return result.stdout

    def train(self, model, name, *more):
        self.run_trireme("train", "--model", model, "--data.generated_size=50000", "--train.eval_batches=1",
                         f"--observe.run_dir={name}", "--nproc", "2", *more)

    def export(self, run, *more):
        file = os.path.join(self.folder, f"{run}{len(more)}.safetensors")
        self.run_trireme("checkpoint", "export", run, "--to", file, *more)
        return read_safetensors(file)

    def check(self, model, *settings):
        self.train(model, "first", "--train.steps=2", *settings)
        out = self.export("first")
        file = os.path.join(self.folder, "first0.safetensors")
        # A learning rate of 0 leaves the weights as they came in.
        self.train(model, "second", "--train.steps=1", "--optimizer.lr=0", "--checkpoint.start_from=" + file, *settings)
        back = self.export("second")
        self.assertEqual(out.keys(), back.keys())
        for name, tensor in out.items():
            self.assertEqual(tensor, back[name], name)
        self.assertEqual(self.export("first", "--own-names"), self.export("second", "--own-names"))
        # The weights were not the initial ones: else coming back would prove nothing.
        self.train(model, "third", "--train.steps=1", "--optimizer.lr=0", *settings)
        self.assertNotEqual(out, self.export("third"))
        return out

    def test_gpt2(self):
        names = self.check("gpt2-tiny")
        self.assertTrue(any(name.endswith("h.1.mlp.c_proj.weight") for name in names), sorted(names))

    def test_llama(self):
        names = self.check("llama-tiny")
        self.assertIn("model.layers.1.self_attn.k_proj.weight", names)


if __name__ == "__main__":
    unittest.main()
