"""The built-in pipeline schedules, as the program names them."""
import os
import re
import subprocess


def kinds():
    help_text = subprocess.run([os.path.join(os.environ["TRIREME_BIN_DIR"], "trireme"), "schedule", "show", "--help"],
                               capture_output=True, text=True, timeout=60, check=True).stdout
    found = re.search(r"\nKinds\n((?:  .+\n)+)", help_text).group(1)
    return [name.strip() for line in found.splitlines() for name in line.split(",")]
