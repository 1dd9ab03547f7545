#!/usr/bin/env python3
"""A pipeline of two processes beside PyTorch's 1F1B: speed, bubbles, and memory beside their formulas.

  bench/pipeline.py [--bin build/release/bin] [--repeats 3] [--skip-memory]

Speed: gpt2-bench with untied weights in 4 micro-batches, one thread a worker, in turn with PyTorch where $TRIREME_PYTHON
has one; medians. Bubbles: of `trireme trace`, measured and as the checker's timeline has them. Memory: peak of worker
0; GPipe with 4 and with 16 micro-batches tells what one of them keeps and what everything else takes, and the others
must be what that says. Exit code 1 where a goal is missed: 1.2 times PyTorch with the best schedule, bubbles within 3
points, memory within 10 percent (sums and messages under way are not in the formula).
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

SCHEDULES = ["1f1b", "zb-h1", "zb-v"]
PIPELINE = ["--parallel.dp=1", "--parallel.pp=2"]
MODEL = ["--model", "gpt2-bench", "--model.tied=false", "--train.global_batch=16", "--train.micro_batch=4"]
# Four blocks a worker, whose activations are most of the memory.
DEEP = ["--model", "gpt2-bench", "--model.layers=8", "--model.seq=256", "--model.tied=false", "--train.micro_batch=4",
        "--data.generated_size=200000", "--train.leaves=4"]
QUIET = ["--train.target_loss=0", "--train.eval_every=0", "--checkpoint.every=0", "--checkpoint.resume=never",
         "--observe.tensorboard=false", "--observe.report=false", "--json"]
GOAL_SPEED, GOAL_BUBBLE, GOAL_MEMORY = 1.2, 0.03, 0.1


def run(*words):
    done = subprocess.run(words, capture_output=True, text=True, timeout=900)
    if done.returncode != 0:
        sys.exit(f"{' '.join(words)}\n{done.stdout}{done.stderr}")
    return json.loads(done.stdout[done.stdout.index("{"):])


class Bench:
    def __init__(self, folder, repeats):
        self.program = os.path.join(folder, "trireme")
        self.repeats = repeats
        self.python = os.environ.get("TRIREME_PYTHON")
        self.misses = []

    def train(self, *words):
        folder = tempfile.mkdtemp(prefix="trireme-pipeline-")
        try:
            result = run(self.program, "train", *words, *QUIET, f"--observe.run_dir={folder}/run")
            traced = any(word.startswith("--observe.trace_steps") for word in words)
            return result, run(self.program, "trace", f"{folder}/run", "--json")["steps"] if traced else []
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def expect(self, holds, what):
        if not holds:
            self.misses.append(what)

    def peer(self):
        script = os.path.join(os.path.dirname(os.path.realpath(__file__)), "peer_ddp.py")
        return run(self.program, "launch", "--nproc-per-node", "2", "--", self.python, script, "--mode", "pp",
                   "--micro-batches", "4")["tokens_per_second"]

    def ours(self, schedule):
        layout = f"dp=1,pp=2,schedule={schedule}"
        return run(self.program, "bench", "train", *MODEL, "--layouts", layout, "--repeats", "1", "--steps", "20",
                   "--json")["tokens_per_second"]

    def bubbles(self, schedule):
        steps = 12
        _, trace = self.train(*MODEL, *PIPELINE, f"--parallel.schedule={schedule}", f"--train.steps={steps}",
                              f"--observe.trace_steps={steps - 3}")
        return [statistics.median(step[name] for step in trace) for name in ("measured_bubble", "predicted_bubble")]

    def compare_speed(self):
        speeds = {name: [] for name in SCHEDULES}
        peers = []
        for _ in range(self.repeats):
            if self.python:
                peers.append(self.peer())
            for name in SCHEDULES:
                speeds[name].append(self.ours(name))
        peer = statistics.median(peers) if peers else None
        print(f"{'':14}{'tokens/s':>10}{'beside PyTorch':>16}{'bubble':>10}{'predicted':>11}")
        if peer:
            print(f"{'PyTorch, 1F1B':14}{peer:10,.0f}")
        for name in SCHEDULES:
            speed = statistics.median(speeds[name])
            measured, predicted = self.bubbles(name)
            ratio = f"{speed / peer:.2f}x" if peer else "no PyTorch"
            print(f"{name:14}{speed:10,.0f}{ratio:>16}{100 * measured:8.1f} %{100 * predicted:9.1f} %", flush=True)
            self.expect(abs(measured - predicted) <= GOAL_BUBBLE, f"the bubble of {name} is not the predicted one")
        best = max(statistics.median(each) for each in speeds.values())
        self.expect(not peer or best >= GOAL_SPEED * peer, f"the best schedule is not {GOAL_SPEED} times PyTorch")

    def memory(self, schedule, micro_batches, recompute):
        result, _ = self.train(*DEEP, *PIPELINE, f"--parallel.schedule={schedule}", f"--train.recompute={recompute}",
                               f"--train.global_batch={4 * micro_batches}", "--train.steps=3")
        return result["worker_memory_bytes"][0] / 2**20

    def compare_memory(self):
        few, many = self.memory("gpipe", 4, "none"), self.memory("gpipe", 16, "none")
        kept = (many - few) / 12
        rest = few - 4 * kept
        print(f"\na micro-batch keeps {kept:.0f} MiB on worker 0, everything else takes {rest:.0f} MiB")
        print(f"{'':26}{'kept':>6}{'MiB':>8}{'formula':>9}")
        print(f"{'gpipe, 4 micro-batches':26}{4:6}{few:8.0f}\n{'gpipe, 16 micro-batches':26}{16:6}{many:8.0f}")
        for schedule, count, recompute, number in [("1f1b", 4, "none", 2), ("1f1b", 4, "full", 1),
                                                   ("gpipe", 4, "full", 1), ("gpipe", 16, "full", 1)]:
            found, formula = self.memory(schedule, count, recompute), rest + number * kept
            name = f"{schedule}, {count}" + (", full" if recompute == "full" else "")
            print(f"{name:26}{number:6}{found:8.0f}{formula:9.0f}", flush=True)
            self.expect(abs(found - formula) <= GOAL_MEMORY * formula, f"the memory of {name} is not what the formula says")


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bin", default="build/release/bin", help="folder of the programs")
    arguments.add_argument("--repeats", type=int, default=3)
    arguments.add_argument("--skip-speed", action="store_true")
    arguments.add_argument("--skip-memory", action="store_true")
    chosen = arguments.parse_args()
    bench = Bench(os.path.realpath(chosen.bin), chosen.repeats)
    if not chosen.skip_speed:
        bench.compare_speed()
    if not chosen.skip_memory:
        bench.compare_memory()
    for miss in bench.misses:
        print(f"missed: {miss}")
    sys.exit(1 if bench.misses else 0)


main()
