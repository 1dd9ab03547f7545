"""As train_kill_test.py, at many more moments."""
# ctest: slow timeout=900

import unittest

from train_program import KillTest


class KillMany(KillTest):
    def test_killed_at_random_moments(self):
        for seed in range(100, 120):
            self.chain(seed, 3)


if __name__ == "__main__":
    unittest.main()
