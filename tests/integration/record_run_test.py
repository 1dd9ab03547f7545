#!/usr/bin/env python3
"""tools/record_run: the last frame has what the command left on the screen, the exit code is the command's."""
# ctest: timeout=60

import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml
from pathlib import Path

TOOL = Path(__file__).resolve().parents[2] / "tools" / "record_run"
PROGRAM = r"""
import sys
print("first <line> & more")
for step in (1, 20, 3):
    print(f"\rstep {step} \x1b[36mbar\x1b[0m\x1b[K", end="", flush=True)
print()
print("x" * 25)
sys.exit(3)
"""


class RecordRun(unittest.TestCase):
    def test_draws_what_was_left_on_the_screen(self):
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder) / "run.svg"
            done = subprocess.run([sys.executable, TOOL, "--out", out, "--columns", "20",
                                   "--shows", "./program", "--",
                                   sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, timeout=50)
            self.assertEqual(done.returncode, 3)
            picture = xml.parse(out).getroot()
        texts = [("".join(text.itertext()), text.get("style", "")) for text in picture.iter("{http://www.w3.org/2000/svg}text")]
        stays = [text for text, style in texts if "visibility:hidden" not in style]
        self.assertEqual(stays, ["$ ./program", "first <line> & more", "step 3 bar", "x" * 20, "x" * 5])
        self.assertEqual([style for text, style in texts if text == "$ ./program"], [""])  # there from the start
        colours = [span.get("class") for span in picture.iter("{http://www.w3.org/2000/svg}tspan") if span.text == "bar"]
        self.assertTrue(colours and set(colours) == {"cyan"}, colours)
        for name in re.findall(r"animation-name:(k\d+)", " ".join(style for _, style in texts)):
            self.assertIn(f"@keyframes {name}{{", "".join(picture.itertext()))

    def test_a_silent_command_is_an_error(self):
        done = subprocess.run([sys.executable, TOOL, "--out", "/nowhere/run.svg", "--", "true"],
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=50)
        self.assertEqual(done.returncode, 1)
        self.assertIn("printed nothing", done.stderr)


if __name__ == "__main__":
    unittest.main()
