#!/usr/bin/env python3
"""Time to the target loss over a slow link: two workers on two hosts that are network namespaces, 100 Mbit/s between them.

  bench/slow_link.py [--bin build/release/bin] [--methods dense,topk,powersgd,diloco] [--plot docs/img/slow_link.svg]

The same task for all: the default one with a quarter of its batch, so that a step computes little and sends much.
Each method has settings of its own (below), as it would have in use. Seconds are those of the event log, from the first
step to the first evaluation that is at the target or below; bytes are those that the two ends of the cable have sent by
then, headers and all. Needs root, and Linux with sch_tbf.
"""
import argparse
import datetime
import json
import os
import shutil
import subprocess
import tempfile
import time

import two_hosts

TARGET = 0.75  # held-out loss: that of the default task
TASK = ["--train.global_batch=8", "--train.micro_batch=4", "--train.eval_every=50", "--train.eval_batches=16",
        "--train.target_loss=0", "--train.log_every=50", "--checkpoint.resume=never", "--observe.tensorboard=false",
        "--observe.report=false"]
METHODS = {
    "dense": ["--train.steps=1200"],
    # An element comes about once in a hundred steps: a longer memory for its mean square, and a larger step.
    "topk": ["--train.steps=2000", "--compression.method=topk", "--compression.density=0.01",
             "--compression.warmup_steps=40", "--optimizer.beta2=0.99", "--optimizer.lr=6e-3"],
    "powersgd": ["--train.steps=1600", "--compression.method=powersgd", "--compression.rank=8",
                 "--compression.warmup_steps=20"],
    "diloco": ["--train.steps=1600", "--local.method=diloco", "--local.every=10", "--local.format=int8",
               "--local.outer_lr=0.7", "--local.outer_momentum=0.6"],
}
LONGEST_S = 1800  # of one method


def seconds_of(event):
    return datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


def read_events(path):
    if not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file if line.endswith("\n")]


def measure(name, program, more):
    """One training, ended at the target. Points of (seconds, step, loss), and bytes until the target, or None."""
    folder = tempfile.mkdtemp(prefix="trireme-slow-")
    words = [*TASK, *METHODS[name], *more, f"--observe.run_dir={folder}/run"]
    before = two_hosts.bytes_sent()
    processes = two_hosts.start_workers(program, words, folder)
    points, sent = [], None
    try:
        deadline = time.monotonic() + LONGEST_S
        while time.monotonic() < deadline:
            ended = all(process.poll() is not None for process in processes)
            now = two_hosts.bytes_sent() - before
            events = read_events(f"{folder}/run/events.jsonl")
            begin = [seconds_of(event) for event in events if event["kind"] == "resume"]
            points = [(seconds_of(event) - begin[0], event["step"], event["values"]["loss"])
                      for event in events if event["kind"] == "eval"]
            if points and points[-1][2] <= TARGET:
                sent = now
                break
            if ended:
                break
            time.sleep(0.1)
        if not points:
            raise RuntimeError(open(f"{folder}/worker-0.txt").read())
    finally:
        for process in processes:
            process.kill()
            process.wait()
        shutil.rmtree(folder, ignore_errors=True)
    return points, sent


def draw(program, path, curves, rate):
    lines = [f"{name}\t{seconds}\t{loss}\n" for name, points in curves.items() for seconds, _, loss in points]
    subprocess.run([program, path, "Held-out loss over time", f"two workers, {rate} between them", "seconds", str(TARGET)],
                   input="".join(lines), text=True, check=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--bin", default="build/release/bin", help="folder of the programs")
    arguments.add_argument("--methods", default=",".join(METHODS))
    arguments.add_argument("--rate", default="100mbit", help="of the cable, as tc writes it")
    arguments.add_argument("--plot", help="an SVG file")
    arguments.add_argument("keys", nargs="*", help="after --: keys of trireme train for all methods")
    chosen = arguments.parse_args()
    unknown = [name for name in chosen.methods.split(",") if name not in METHODS]
    if unknown:
        arguments.error(f"there is no method {unknown[0]}; there are {', '.join(METHODS)}")

    bin_folder = os.path.realpath(chosen.bin)
    curves, rows = {}, {}
    print(f"{'method':10} {'seconds':>8} {'steps':>6} {'ms a step':>10} {'MB':>9} {'faster':>7} {'fewer bytes':>12}")
    with two_hosts.joined(chosen.rate):
        for name in chosen.methods.split(","):
            points, sent = measure(name, f"{bin_folder}/trireme", chosen.keys)
            curves[name] = points
            seconds, steps, loss = points[-1]
            if sent is None:
                print(f"{name:10} missed the target: {loss:.3f} after {seconds:.0f} s and {steps} steps", flush=True)
                continue
            rows[name] = (seconds, sent)
            ratios = [f"{rows['dense'][i] / rows[name][i]:.1f}x" for i in (0, 1)] if "dense" in rows else ["", ""]
            print(f"{name:10} {seconds:8.1f} {steps:6} {1000 * seconds / steps:10.1f} {sent / 1e6:9.1f} {ratios[0]:>7} "
                  f"{ratios[1]:>12}", flush=True)
    if chosen.plot:
        draw(f"{bin_folder}/bench_loss_curves", chosen.plot, curves, chosen.rate)


main()
