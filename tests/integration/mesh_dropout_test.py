#!/usr/bin/env python3
# ctest: timeout=120
"""Dropout of a network that is cut by rules follows torch::manual_seed(), and is that of one process."""
import os
import subprocess
import unittest

BIN = os.environ["TRIREME_BIN_DIR"]
PROGRAM = os.path.join(BIN, "mesh_dropout_program")


@unittest.skipUnless(os.path.exists(PROGRAM), "built without libtorch")
class Dropout(unittest.TestCase):
    def losses(self, ranks, *seeds):
        done = subprocess.run([os.path.join(BIN, "trireme"), "launch", "--nproc-per-node", str(ranks), "--", PROGRAM,
                               *map(str, seeds)], capture_output=True, text=True, timeout=100)
        self.assertEqual(done.returncode, 0, done.stderr)
        losses = [float(line) for line in done.stdout.split()]
        self.assertEqual(len(losses), 5)
        return losses

    def assert_close(self, a, b):
        for one, other in zip(a, b):
            self.assertAlmostEqual(one, other, delta=2e-4)

    def test_the_seed_decides(self):
        one = self.losses(1, 1)
        for ranks in (2, 4):
            found = self.losses(ranks, 1)
            self.assertEqual(found, self.losses(ranks, 1))
            self.assert_close(found, one)
        self.assertNotEqual(self.losses(2, 2), self.losses(2, 1))

    def test_ranks_with_seeds_of_their_own_draw_as_rank_0_does(self):
        self.assert_close(self.losses(2, 1, 99), self.losses(2, 1))


if __name__ == "__main__":
    unittest.main()
