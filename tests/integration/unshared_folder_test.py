#!/usr/bin/env python3
# ctest: timeout=200
"""Ranks that do not see each other's run folder, as on hosts without a shared file system: told at the start."""
import os
import socket
import subprocess
import time
import unittest
from pathlib import Path

from layouts import TRIREME, LayoutTest, run

SMALL = ["--model", "gpt2-tiny", "--model.layers=1", "--model.hidden=32", "--model.heads=2", "--model.seq=16",
         "--train.global_batch=16", "--train.micro_batch=8", "--data.generated_size=65536", "--train.steps=4"]
CLEAN = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "SLURM_"))}


class Unshared(LayoutTest):
    def train(self, *words, together=False):
        """Two ranks with torchrun's variables, each in a folder of its own: their relative paths differ."""
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank in range(2):
            place = Path(self.folder, "host" + str(0 if together else rank))
            place.mkdir(exist_ok=True)
            variables = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2",
                         "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
            ranks.append(subprocess.Popen([TRIREME, "train", *SMALL, *words], cwd=place, env={**CLEAN, **variables},
                                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
        outputs = [process.communicate(timeout=150) for process in ranks]
        return [process.returncode for process in ranks], "".join(said + complained for said, complained in outputs)

    def test_shares_that_could_not_come_are_refused_at_the_start(self):
        start = time.monotonic()
        codes, said = self.train()
        self.assertNotIn(0, codes, said)
        self.assertEqual(said.count("does not see the run folder"), 1, said)
        self.assertIn("rank 1 on ", said)
        self.assertIn("--checkpoint.spread=false", said)
        self.assertIn("--observe.run_dir", said)
        self.assertLess(time.monotonic() - start, 100, "not only after the wait for shares")

    def test_stages_always_write(self):
        codes, said = self.train("--parallel.pp=2", "--model.layers=2", "--checkpoint.spread=false")
        self.assertNotIn(0, codes, said)
        self.assertIn("stages write their weights there", said)
        self.assertNotIn("--checkpoint.spread=false", said)

    def test_worker_0_alone_saves(self):
        codes, said = self.train("--checkpoint.spread=false", "--observe.run_dir=run")
        self.assertEqual(codes, [0, 0], said)
        self.assertIn("does not see the run folder", said)
        self.assertEqual(run("checkpoint", "verify", "host0/run", cwd=self.folder).returncode, 0)
        self.assertEqual(list(Path(self.folder, "host1").rglob("*.safetensors")), [], "worker 1 has written")

    def test_nothing_is_said_where_it_is_shared(self):
        codes, said = self.train("--observe.run_dir=run", together=True)
        self.assertEqual(codes, [0, 0], said)
        self.assertNotIn("does not see", said)
        self.assertEqual([path.name for path in Path(self.folder, "host0", "run").glob(".seen*")], [])


if __name__ == "__main__":
    unittest.main()
