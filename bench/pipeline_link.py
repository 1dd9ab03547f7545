#!/usr/bin/env python3
"""Pipeline beside tensor and data parallelism over a link: two workers on two hosts that are network namespaces.

  bench/pipeline_link.py [--bin build/release/bin] [--rates ",1gbit,100mbit"] [--steps 20]

The model is gpt2-bench with 4 micro-batches of 4 sequences. Tokens a second, and what is left of those over the first
link. A pipeline sends one tensor a micro-batch and cut each way, and hides it; tensor parallelism sends four a block
and waits for each. Needs root, and Linux with sch_tbf.
"""
import argparse
import json
import os
import shutil
import tempfile

import two_hosts

MODEL = ["--model", "gpt2-bench", "--model.tied=false", "--train.global_batch=16", "--train.micro_batch=4",
         "--train.eval_every=0", "--train.target_loss=0", "--checkpoint.resume=never", "--checkpoint.every=0",
         "--observe.tensorboard=false", "--observe.report=false", "--json"]
LAYOUTS = {
    "pp=2, zb-h1": ["--parallel.dp=1", "--parallel.pp=2", "--parallel.schedule=zb-h1"],
    "pp=2, 1f1b": ["--parallel.dp=1", "--parallel.pp=2"],
    "tp=2": ["--parallel.dp=1", "--parallel.tp=2"],
    "dp=2": ["--parallel.dp=2"],
}
LONGEST_S = 600  # of one training


def tokens_per_second(program, words):
    folder = tempfile.mkdtemp(prefix="trireme-link-")
    processes = two_hosts.start_workers(program, [*words, f"--observe.run_dir={folder}/run"], folder)
    try:
        for process in processes:
            process.wait(timeout=LONGEST_S)
        text = open(f"{folder}/worker-0.txt").read()
        if any(process.returncode != 0 for process in processes):
            raise RuntimeError(text)
        return json.loads(text[text.index("{"):])["tokens_per_second"]
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bin", default="build/release/bin", help="folder of the programs")
    arguments.add_argument("--rates", default=",1gbit,100mbit", help="of the cable, as tc writes them; empty: unshaped")
    arguments.add_argument("--steps", type=int, default=20)
    chosen = arguments.parse_args()
    program = os.path.realpath(os.path.join(chosen.bin, "trireme"))
    print(f"{'link':10}" + "".join(f"{name:>20}" for name in LAYOUTS))
    first = {}
    for rate in chosen.rates.split(","):
        cells = []
        with two_hosts.joined(rate):
            for name, words in LAYOUTS.items():
                speed = tokens_per_second(program, [*MODEL, *words, f"--train.steps={chosen.steps}"])
                share = speed / first.setdefault(name, speed)
                cells.append(f"{speed:13,.0f} {100 * share:4.0f} %")
        print(f"{rate or 'unshaped':10}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


main()
