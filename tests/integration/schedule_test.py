"""`trireme schedule`: what it draws, writes and refuses; and that the pictures in the documents are its own."""
# ctest: timeout=120

import json
import os
import re
import subprocess
import tempfile
import unittest
import xml.etree.ElementTree
from pathlib import Path

from schedules import kinds

ROOT = Path(__file__).resolve().parents[2]
TRIREME = os.path.join(os.environ["TRIREME_BIN_DIR"], "trireme")
KINDS = kinds()


def trireme(*arguments, code=0, cwd=None):
    environment = {**os.environ, "COLUMNS": "100"}
    result = subprocess.run([TRIREME, "schedule", *arguments], capture_output=True, text=True, timeout=60, cwd=cwd,
                            env=environment)
    assert result.returncode == code, (arguments, result)
    return result.stdout if code == 0 else result.stdout + result.stderr


def numbers(*arguments):
    return json.loads(trireme(*arguments, "--json"))


class Show(unittest.TestCase):
    def test_help_lists_the_kinds(self):
        self.assertLessEqual({"naive", "1f1b", "interleaved-1f1b", "zb-v", "pipedream-2bw"}, set(KINDS))
        self.assertEqual(len(KINDS), len(set(KINDS)))

    def test_every_kind_draws_a_line_a_rank(self):
        for kind in KINDS:
            with self.subTest(kind):
                text = trireme("show", "--kind", kind, "--stages", "3", "--microbatches", "4")
                self.assertTrue(text.startswith(f"{kind}: "))
                self.assertNotIn("\033", text, "colours are for terminals")
                for rank in range(3):
                    self.assertRegex(text, rf"(?m)^rank {rank} .*F0")
                self.assertTrue(all(len(line) <= 100 for line in text.splitlines()))

    def test_json_has_the_promised_fields(self):
        found = numbers("show", "--kind", "1f1b", "--stages", "4", "--microbatches", "8")
        self.assertEqual(found["makespan_ms"], 33)
        self.assertAlmostEqual(found["bubble_rate"], 3 / 11)
        self.assertEqual(found["peak_activations"], [4, 3, 2, 1])

    def test_published_rates(self):
        times = ["--forward-ms", "18.522", "--backward-ms", "18.086", "--weight-ms", "9.337", "--comm-ms", "0.601"]
        for kind, rate in [("1f1b", .2431), ("zb-h1", .1585), ("zb-h2", .1083)]:
            found = numbers("show", "--kind", kind, "--stages", "8", "--microbatches", "24", *times)
            self.assertAlmostEqual(found["bubble_rate"], rate, delta=0.005)

    def test_times_of_each_stage(self):
        even = numbers("show", "--kind", "gpipe", "--stages", "2", "--microbatches", "2", "--forward-ms", "1,1")
        slow = numbers("show", "--kind", "gpipe", "--stages", "2", "--microbatches", "2", "--forward-ms", "1,5")
        self.assertEqual(slow["makespan_ms"] - even["makespan_ms"], 8)
        halves = numbers("show", "--kind", "zb-v", "--stages", "2", "--forward-ms", "1,1,1,1")
        self.assertEqual(halves["busy_ms"], [32, 32])

    def test_recomputation_trades_time_for_memory(self):
        shape = ["show", "--kind", "gpipe", "--stages", "3", "--microbatches", "6"]
        plain, again = numbers(*shape), numbers(*shape, "--recompute")
        self.assertEqual(plain["peak_activations"], [6, 6, 6])
        self.assertEqual(again["peak_activations"], [1, 1, 1])
        self.assertGreater(again["makespan_ms"], plain["makespan_ms"])

    def test_asynchronous_kinds_say_how_stale_they_are(self):
        found = numbers("show", "--kind", "pipedream", "--stages", "4", "--microbatches", "12")
        self.assertEqual(found["staleness"], [3, 2, 1, 0])
        self.assertEqual(found["weight_versions"], [4, 3, 2, 1])
        self.assertEqual(found["updates"], 12)

    def test_text_lists_instructions(self):
        text = trireme("show", "--kind", "zb-h1", "--stages", "2", "--microbatches", "2", "--text")
        self.assertIn("rank 1\nRecvActivation stage 1 micro-batch 0 peer -1\n", text)
        self.assertIn("WeightGrad stage 0 micro-batch 1 -> slot 1\n", text)

    def test_pictures_are_well_formed(self):
        with tempfile.TemporaryDirectory() as folder:
            svg = os.path.join(folder, "a.svg")
            trireme("show", "--kind", "interleaved", "--svg", svg)
            tree = xml.etree.ElementTree.parse(svg)
            titles = [node.text for node in tree.iter("{http://www.w3.org/2000/svg}title")]
            self.assertEqual(len(titles), 8 * 8 * 2, "one for each forward and backward pass of each stage")
            self.assertIn("Forward stage 0 micro-batch 0: 0 to 0.5 ms", titles)

    def test_refuses_nonsense(self):
        for arguments, sentence in [
            (["--kind", "zb-h3"], "did you mean zb-h1?"),
            (["--stages", "0"], "a pipeline of 0 ranks cannot be"),
            (["--microbatches", "-3"], "-3 micro-batches"),
            (["--forward-ms", "1,2,3"], "forward times: 3 values"),
            (["--forward-ms", "-1"], "times are 0 or more"),
            (["--kind", "gpipe", "--interleave", "2"], "gpipe has 1 stage per rank"),
            (["--kind", "pipedream", "--update-every", "3"], "no whole number of updates"),
            (["--stages", "x"], "--stages"),
            (["--colour"], "unknown flag --colour"),
        ]:
            with self.subTest(arguments):
                self.assertIn(sentence, trireme("show", *arguments, code=2))


class Check(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.file = os.path.join(self.folder.name, "mine.csv")

    def check(self, csv, *arguments, code=0):
        Path(self.file).write_text(csv)
        return trireme("check", self.file, *arguments, code=code)

    def test_accepts_what_show_writes(self):
        for kind in KINDS:
            for messages in [[], ["--messages"]]:
                with self.subTest(kind, messages=messages):
                    shown = numbers("show", "--kind", kind, "--stages", "3", "--csv", self.file, *messages)
                    if shown["updates"] > 1:  # which a file cannot say
                        continue
                    checked = numbers("check", self.file)
                    self.assertEqual({**shown, "kind": ""}, {**checked, "kind": ""})
                    self.assertIn("can run", trireme("check", self.file))

    def test_refuses_words_that_it_does_not_know(self):
        self.assertIn("mine.csv: row 2, column 1: '1G0' has the unknown action 'G'", self.check("0F0,0B0\n1G0,1B0\n", code=2))
        self.assertIn("there is no file", trireme("check", "nowhere.csv", code=2))
        self.assertIn("FILE is required", trireme("check", code=2))

    def test_names_the_cause(self):
        hang = "0F0,0B0,0F1,0B1\n1F1,1F0,1B0,1B1\n"
        self.assertIn("would hang: rank 0 waits at", self.check(hang, code=1))
        self.assertIn("would hang", json.loads(self.check(hang, "--json", code=1))["error"])
        order = self.check("0F0,0F1,0B1,0B0\n1F0,1F1,1B1,1B0\n", code=1)
        self.assertIn("rank 0, Backward stage 0 micro-batch 1: weight gradients of a stage are summed in the order", order)
        unmatched = self.check("0F0,0SEND_F0,0RECV_B0,0B0\n1RECV_F0,1F0,1B0\n", code=1)
        self.assertIn("which rank 1 has not sent", unmatched)


class Documents(unittest.TestCase):
    def test_pictures_are_what_the_tool_draws(self):
        document = (ROOT / "docs" / "programs.md").read_text()
        commands = re.findall(r"trireme schedule show (.*?--svg docs/img/\S+\.svg)", document)
        self.assertGreater(len(commands), 3)
        with tempfile.TemporaryDirectory() as folder:
            os.makedirs(os.path.join(folder, "docs", "img"))
            for command in commands:
                words = command.split()
                with self.subTest(words[-1]):
                    trireme("show", *words, cwd=folder)
                    self.assertEqual((Path(folder) / words[-1]).read_text(), (ROOT / words[-1]).read_text(),
                                     f"make it again: trireme schedule show {command}")
                    self.assertIn(f"({words[-1].removeprefix('docs/')})", document)

    def test_instructions_are_all_explained(self):
        names = re.findall(r'"([A-Z]\w+)"', (ROOT / "src/trireme/program/text.cpp").read_text().split("kNames = {")[1].split("}")[0])
        self.assertGreater(len(names), 10)
        document = (ROOT / "docs" / "programs.md").read_text()
        for name in names:
            self.assertIn(f"| `{name}` |", document)


if __name__ == "__main__":
    unittest.main()
