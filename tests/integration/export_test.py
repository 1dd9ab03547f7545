#!/usr/bin/env python3
# ctest: timeout=120
"""`trireme checkpoint export`: the folder holds what belongs to the weights, whatever was there before."""
import json
import unittest
from pathlib import Path

from layouts import LayoutTest

SMALL = ["--model", "gpt2-tiny", "--model.layers=1", "--model.hidden=32", "--model.heads=2", "--model.seq=16",
         "--train.global_batch=16", "--train.micro_batch=8", "--train.steps=1", "--nproc", "1"]


class Export(LayoutTest):
    def export(self, *words):
        return self.run_json("checkpoint", "export", "run", "--to", "out/model.safetensors", *words)

    def test_the_config_of_another_model_gives_way(self):
        self.run_json("train", *SMALL, "--observe.run_dir=run", "--data.generated_size=65536")
        out = Path(self.folder, "out")
        out.mkdir()
        (out / "config.json").write_text('{"n_layer": 77}')
        report = self.export()
        self.assertEqual(json.loads((out / "config.json").read_text())["n_layer"], 1)
        self.assertEqual((out / "config.json.old").read_text(), '{"n_layer": 77}')
        self.assertEqual(report["beside"], [{"file": "out/config.json", "old": "out/config.json.old"}])
        self.assertEqual(self.export()["beside"], [{"file": "out/config.json", "old": ""}])
        self.export("--own-names")

    def test_the_tokenizer_comes_along(self):
        # GPT-2's way to write bytes as characters.
        printable = [*range(0x21, 0x7f), *range(0xa1, 0xad), *range(0xae, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        characters = [chr(byte) for byte in printable] + [chr(256 + place) for place in range(len(others))]
        words = Path(self.folder, "words")
        words.mkdir()
        (words / "vocab.json").write_text(json.dumps({character: i for i, character in enumerate([*characters, "th"])}))
        (words / "merges.txt").write_text("#version: 0.2\nt h\n")
        Path(self.folder, "my.txt").write_text("the quick brown fox jumps over the lazy dog\n" * 50)
        self.run_json("train", *SMALL, "--observe.run_dir=run", "--data.path=my.txt", "--data.tokenizer=words",
                      "--model.vocab=257")
        self.export()
        for name in ("vocab.json", "merges.txt"):
            self.assertEqual(Path(self.folder, "out", name).read_bytes(), (words / name).read_bytes())


if __name__ == "__main__":
    unittest.main()
