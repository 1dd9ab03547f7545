#!/usr/bin/env python3
"""How near each method of compression comes to the dense training: a table and curves, over several seeds.

  bench/convergence.py [--bin build/release/bin] [--seeds 1,2,3] [--plot docs/img/convergence] [--table FILE.md]

The default task, smaller so that a run takes seconds: 2 layers 64 wide, 8 samples a step, 300 steps, two workers on
this machine. All methods have the settings of the dense training, but for what METHODS says; the distance of those
that need another optimizer is to a dense training with it. A figure is the held-out loss after the last step.
"""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import tempfile

TASK = ["--nproc=2", "--model.layers=2", "--model.hidden=64", "--train.steps=300", "--train.global_batch=8",
        "--train.micro_batch=4", "--train.eval_every=50", "--train.eval_batches=16", "--train.target_loss=0",
        "--optimizer.warmup_steps=30", "--checkpoint.resume=never", "--observe.tensorboard=false", "--observe.report=false"]
SGD = ["--optimizer.kind=sgd", "--optimizer.lr=0.3"]
LONGER = ["--optimizer.beta2=0.99", "--optimizer.lr=6e-3", "--compression.warmup_steps=30"]
# Name in the table, the row that it is compared with, the charts that show it, keys.
METHODS = [
    ("none", "none", "rounding choosing", []),
    ("bfloat16", "none", "rounding", ["bfloat16"]),
    ("float16", "none", "rounding", ["float16"]),
    ("int8", "none", "rounding", ["int8"]),
    ("qsgd 8", "none", "rounding", ["qsgd", "--compression.bits=8"]),
    ("qsgd 4", "none", "rounding", ["qsgd", "--compression.bits=4"]),
    ("qsgd 2", "none", "rounding", ["qsgd", "--compression.bits=2"]),
    ("qsgd 1", "none", "rounding", ["qsgd", "--compression.bits=1"]),
    ("terngrad", "none", "rounding", ["terngrad", "--compression.clip_deviations=2.5"]),
    ("sign", "none", "rounding", ["sign"]),
    ("powersgd 4", "none", "choosing", ["powersgd", "--compression.rank=4"]),
    ("powersgd 8", "none", "choosing", ["powersgd", "--compression.rank=8"]),
    ("topk 1 %", "none", "choosing", ["topk"]),
    ("topk 1 %, β2 0.99, lr 0.006", "none", "choosing", ["topk", *LONGER]),
    ("none, no clipping", "none", "choosing", ["none", "--train.clip=0"]),
    ("onebit_adam", "none, no clipping", "choosing",
     ["onebit_adam", "--train.clip=0", "--compression.warmup_steps=75"]),
    ("none, SGD", "none", "choosing", ["none", *SGD, "--optimizer.momentum=0.9"]),
    ("dgc 1 %", "none, SGD", "choosing", ["dgc", *SGD, "--optimizer.momentum=0", "--compression.warmup_steps=75"]),
]
CHARTS = ["rounding", "choosing"]


def curve_of(program, words, seed):
    """(step, held-out loss) of one run."""
    folder = tempfile.mkdtemp(prefix="trireme-convergence-")
    keys = [f"--compression.method={words[0]}", *words[1:]] if words else []
    try:
        done = subprocess.run([program, "train", *TASK, *keys, f"--train.seed={seed}", f"--observe.run_dir={folder}/run"],
                              capture_output=True, text=True, cwd=folder, timeout=600)
        if done.returncode != 0:
            raise RuntimeError(f"{words}: {done.stdout[-500:]}{done.stderr[-2000:]}")
        with open(f"{folder}/run/events.jsonl") as file:
            events = [json.loads(line) for line in file]
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [(event["step"], float(event["values"]["loss"])) for event in events if event["kind"] == "eval"]


def row_of(name, base, finals):
    losses = finals[name]
    distances = [loss - dense for loss, dense in zip(losses, finals[base])]
    spread = statistics.stdev(losses) if len(losses) > 1 else 0
    far = "" if name == "none" else f"{statistics.mean(distances):+.3f} ({min(distances):+.3f} … {max(distances):+.3f})"
    return f"| {name} | {statistics.mean(losses):.3f} ± {spread:.3f} | {far} |"


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bin", default="build/release/bin", help="folder of the programs")
    arguments.add_argument("--seeds", default="1,2,3")
    arguments.add_argument("--plot", help="pictures of the means over seeds: FILE_rounding.svg and FILE_choosing.svg")
    arguments.add_argument("--table", help="a file for the table, too")
    arguments.add_argument("--only", help="rows, with ; between them, and those that they are compared with")
    chosen = arguments.parse_args()
    bin_folder = os.path.realpath(chosen.bin)
    seeds = chosen.seeds.split(",")
    finals, points = {}, []
    lines = ["| method | held-out loss, mean ± deviation | distance to dense, mean (least … most) |", "| --- | --- | --- |"]
    print("\n".join(lines), flush=True)
    for name, base, charts, words in METHODS:
        if chosen.only and name not in chosen.only.split(";"):
            continue
        curves = [curve_of(f"{bin_folder}/trireme", words, seed) for seed in seeds]
        finals[name] = [curve[-1][1] for curve in curves]
        for at in zip(*curves):
            points.append((charts, f"{name}\t{at[0][0]}\t{statistics.mean(loss for _, loss in at)}\n"))
        lines.append(row_of(name, base, finals))
        print(lines[-1], flush=True)
    if chosen.table:
        with open(chosen.table, "w") as file:
            file.write("\n".join(lines) + "\n")
    for part in CHARTS if chosen.plot else ():
        drawn = "".join(line for charts, line in points if part in charts.split())
        subprocess.run([f"{bin_folder}/bench_loss_curves", f"{chosen.plot}_{part}.svg", f"Held-out loss: {part}",
                        f"mean over {len(seeds)} seeds", "step"], input=drawn, text=True, check=True)


main()
