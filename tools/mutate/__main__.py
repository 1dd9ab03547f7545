"""Proves that the tests can fail: builds small mistakes (mutants) into a copy of the libraries, switches on one at a
time, and lists those that no test notices. docs/testing.md tells how to read the result."""

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

from places import Finder, Place

ROOT = Path(__file__).resolve().parents[2]
TESTS_BUILD = ROOT / "build" / "release"  # its tests run, against the libraries of BUILD
WORK = ROOT / "build" / "mutate"
COPY, BUILD = WORK / "src", WORK / "build"
NUMBERS = 1000  # per folder, so that a mutant keeps its number whatever other folders are asked for

# Who should notice a mistake in a folder: regular expressions over ctest's names, the first one first.
NOTICE = {
    "comm": ["unit.comm", "regressions", "integration.threads", "integration.processes", "unit.server"],
    "program": ["unit.program", "unit.simulate", "integration.schedule", "numerics.pipeline"],
    "checkpoint": ["unit.checkpoint", "unit.train"],
    "compress": ["unit.compress", "numerics.compression"],
    "server": ["unit.server", "numerics.server_steps"],
    "layout": ["unit.layout", "unit.tensor", "unit.plan", "numerics.mesh_rules"],
    "runtime": ["unit.runtime", "unit.parallel", "unit.train",
                "numerics.(zero|stages|recompute|composition|executed_programs|zero_memory)"],
    "parallel": ["unit.parallel", "unit.train", "numerics.(parallelize|pipeline|stages)"],
    "tensor": ["unit.tensor", "unit.parallel", "numerics.mesh_rules", "numerics.tensor_parallel"],
    "train": ["unit.train", "numerics.(trainer_restore|local_training|composition|zero|stages|pipedream)",
              "integration.(cli|bench_train)"],
}
ON_TORCH = {"runtime", "parallel", "tensor", "train"}
LIKELY = {"negated": 2, "skipped statement": 2, "factor": 2, "sign": 2, "bound": 2, "skipped wait": 2}  # others: 1


@dataclass
class Mutant:
    number: int
    folder: str
    path: str  # from the root
    line: int
    last_line: int
    place: Place
    before: str
    after: str
    result: str = ""  # killed, timeout, survived or not reached
    by: str = ""
    seconds: float = 0

    def __str__(self):
        what = ", ".join(filter(None, [self.place.kind, f"{self.result} by {self.by}" if self.by else self.result]))
        return f"{self.number:5} {self.path}:{self.line}  {what}\n      - {self.before}\n      + {self.after}"

    def key(self):
        return f"{self.path}: {self.before} -> {self.after}"

    def lines(self):
        return {(self.path, line) for line in range(self.line, self.last_line + 1)}


def say(line):
    print(line, flush=True)


def draw(folder, seed, wanted, refused, skip):
    """`wanted` mutants of a folder, on lines of their own: the same ones for the same seed and sources."""
    rng = random.Random(f"{seed}/{folder}")
    by_kind, drawn, taken = {}, [], set()
    number = NUMBERS * list(NOTICE).index(folder)
    for path in sorted((ROOT / "src" / "trireme" / folder).rglob("*.cpp")):
        if not re.search(r"_(test|program)\.cpp$|/(cuda|mpi)/" + (f"|{skip}" if skip else ""), str(path)):
            text = path.read_text()
            for place in Finder(text).find():
                by_kind.setdefault(place.kind, []).append((str(path.relative_to(ROOT)), text, place))
    while by_kind and len(drawn) < wanted:
        kinds = sorted(by_kind)
        kind = rng.choices(kinds, [LIKELY.get(kind, 1) for kind in kinds])[0]
        path, text, place = by_kind[kind].pop(rng.randrange(len(by_kind[kind])))
        if not by_kind[kind]:
            del by_kind[kind]
        line, last_line = (text.count("\n", 0, at) + 1 for at in (place.start, place.end))
        start, end = text.rfind("\n", 0, place.start) + 1, text.find("\n", place.end)
        shown = (text[start:end], text[start:place.start] + place.wrong + text[place.end:end])
        mutant = Mutant(number + 1, folder, path, line, last_line, place, *(" ".join(each.split()) for each in shown))
        if mutant.lines() & taken:
            continue
        taken |= mutant.lines()
        number += 1  # also for a refused one: the others stay what they are
        if mutant.key() not in refused:
            drawn.append(mutant)
    return drawn


def switched(text, mutants):
    """A source with its mutants in it. No line moves: the compiler's messages tell which mutant they mean."""
    for mutant in sorted(mutants, key=lambda each: -each.place.start):
        place = mutant.place
        code = place.switched.replace("@N", str(mutant.number))
        code += "\n" * (mutant.last_line - mutant.line - code.count("\n"))
        text = text[:place.start] + code + text[place.end:]
    before, include, after = text.partition("#include")
    return f'{before}#include "trireme/mutant.h"\n#line {before.count(chr(10)) + 1}\n{include}{after}'


def write_copy(mutants):
    """The tree with every mutant in it. Files that do not change keep their time, so that a second build is short."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, check=True, text=True,
                            stdout=subprocess.PIPE).stdout.splitlines()
    contents = {name: (ROOT / name).read_bytes() for name in listed if (ROOT / name).is_file()}
    for path in {mutant.path for mutant in mutants}:
        contents[path] = switched(contents[path].decode(), [each for each in mutants if each.path == path]).encode()
    contents["src/trireme/mutant.h"] = (Path(__file__).parent / "mutant.h").read_bytes()
    for old in COPY.rglob("*"):
        if old.is_file() and str(old.relative_to(COPY)) not in contents:
            old.unlink()
    for name, content in contents.items():
        if not (COPY / name).exists() or (COPY / name).read_bytes() != content:
            (COPY / name).parent.mkdir(parents=True, exist_ok=True)
            (COPY / name).write_bytes(content)


def build(folders, jobs):
    """Builds the libraries that hold `folders`. The compiler's errors; "" when it has none."""
    if not (BUILD / "build.ninja").exists():
        given = re.findall(r"^(TRIREME_\w*PARTS:\w+=.*)$", (TESTS_BUILD / "CMakeCache.txt").read_text(), re.M)
        # With assertions, an index out of bounds ends the test, as it does under AddressSanitizer.
        subprocess.run(["cmake", "-S", COPY, "-B", BUILD, "-G", "Ninja", "-DCMAKE_BUILD_TYPE=Release",
                        "-DCMAKE_CXX_FLAGS=-D_GLIBCXX_ASSERTIONS", *("-D" + each for each in given)], check=True,
                       stdout=subprocess.DEVNULL)
    known = subprocess.run(["ninja", "-C", BUILD, "-t", "targets", "all"], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    libraries = ["trireme", "trireme_mpi", *(["trireme_torch"] if ON_TORCH & set(folders) else [])]
    libraries = [name for name in libraries if f"\n{name}: " in known]
    result = subprocess.run(["ninja", "-C", BUILD, "-k", "0", "-j", str(jobs), *libraries], text=True,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    return result.stdout if result.returncode else ""


def build_mutants(folders, args):
    """Draws and builds, and draws others for those that do not compile."""
    memory = WORK / "refused.json"
    refused = set(json.loads(memory.read_text())) if memory.exists() else set()
    while True:
        mutants = [mutant for folder in folders
                   for mutant in draw(folder, args.seed, args.per_folder, refused, args.skip)]
        write_copy(mutants)
        errors = build(folders, args.jobs)
        if not errors:
            return mutants
        named = {(path, int(line)) for path, line in re.findall(r"(src/trireme/[\w./]+):(\d+):", errors)}
        bad = [mutant for mutant in mutants if mutant.lines() & named]
        if not bad:
            sys.exit(f"error: the mutated copy {COPY} does not build, and no mutant is to blame\n{errors[-4000:]}")
        say(f"{len(bad)} of {len(mutants)} mutants do not compile: others are drawn")
        refused |= {mutant.key() for mutant in bad}
        memory.write_text(json.dumps(sorted(refused), indent=1))


@dataclass
class Test:
    name: str
    command: list
    environment: dict
    folder: str
    seconds: float = 0
    reached: set = field(default_factory=set)

    def run(self, limit, **switch):
        """("passed", "killed" or "timeout", output). What the test has started ends with it."""
        token = f"{os.getpid()}-{time.monotonic_ns()}"
        environment = {**os.environ, **self.environment, "GTEST_FAIL_FAST": "1", "LD_LIBRARY_PATH": str(BUILD / "lib"),
                       "TRIREME_MUTANT_RUN": token, **switch}
        with tempfile.TemporaryFile() as output:
            process = subprocess.Popen(self.command, cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
                                       stdout=output, stderr=output)
            try:
                outcome = "killed" if process.wait(limit) else "passed"
            except subprocess.TimeoutExpired:
                outcome = "timeout"
            end_processes(f"TRIREME_MUTANT_RUN={token}".encode())
            process.wait()
            output.seek(0)
            return outcome, output.read().decode(errors="replace")


def end_processes(variable):
    """Ends the processes whose environment has `variable`: those of one test, in whatever groups it has put them."""
    for entry in Path("/proc").glob("[0-9]*/environ"):
        try:
            if variable in entry.read_bytes().split(b"\0"):
                os.kill(int(entry.parent.name), signal.SIGKILL)
        except OSError:  # ended meanwhile, or not ours
            pass


def rank_of(folder, test):
    """Where the folder's row of NOTICE has the test, from 1; 0 where it has not."""
    return next((rank for rank, each in enumerate(NOTICE[folder], 1) if re.fullmatch(each + r"(\..*)?", test.name)), 0)


def tests_for(folders, wanted):
    listed = subprocess.run(["ctest", "--test-dir", TESTS_BUILD, "--show-only=json-v1"], check=True, text=True,
                            stdout=subprocess.PIPE).stdout
    tests = []
    for entry in json.loads(listed)["tests"]:
        properties = {each["name"]: each["value"] for each in entry["properties"]}
        environment = dict(each.split("=", 1) for each in properties.get("ENVIRONMENT", []))
        test = Test(entry["name"], entry.get("command", []), environment, properties["WORKING_DIRECTORY"])
        if "slow" in properties.get("LABELS", []) or not re.search(wanted, test.name) or \
                not any(rank_of(folder, test) for folder in folders):
            continue
        if test.command and Path(test.command[0]).exists():
            tests.append(test)
        else:
            say(f"left out, for it is not built: {test.name}")
    return tests


def run_clean(tests, mutants):
    """Runs each test without a mutant, to learn how long it takes and which mutants it reaches."""
    numbers = {mutant.number for mutant in mutants}
    for test in tests:
        with tempfile.NamedTemporaryFile(dir=WORK) as trace:
            trace.truncate(NUMBERS * (len(NOTICE) + 1))
            start = time.monotonic()
            outcome, output = test.run(1800, TRIREME_MUTANT_TRACE=trace.name)
            test.seconds = time.monotonic() - start
            test.reached = {number for number, mark in enumerate(Path(trace.name).read_bytes()) if mark} & numbers
        if outcome != "passed":
            sys.exit(f"error: {test.name} fails without any mutant: make it pass first\n{output[-4000:]}")
        say(f"{test.name}: {test.seconds:.1f} s, reaches {len(test.reached)} of {len(numbers)} mutants")
    if not any(test.reached for test in tests):
        sys.exit(f"error: no test reaches any mutant: do the tests in {TESTS_BUILD} load libraries by LD_LIBRARY_PATH?")


def try_mutant(mutant, tests):
    noticing = [test for test in tests if mutant.number in test.reached and rank_of(mutant.folder, test)]
    noticing.sort(key=lambda test: (rank_of(mutant.folder, test) > 1, test.seconds))
    start = time.monotonic()
    mutant.result = "survived" if noticing else "not reached"
    for test in noticing:
        outcome, _ = test.run(20 + 3 * test.seconds, TRIREME_MUTANT=str(mutant.number))
        if outcome != "passed":
            mutant.result, mutant.by = outcome, test.name
            break
    mutant.seconds = round(time.monotonic() - start, 1)
    say(mutant)


def summarize(mutants):
    """Prints the rates, and the mutants that nothing noticed; how many they are."""
    for folder in dict.fromkeys(mutant.folder for mutant in mutants):
        results = [mutant.result for mutant in mutants if mutant.folder == folder]
        say(f"{folder:12}" + ", ".join(f"{results.count(each):3} {each}"
                                       for each in ("killed", "timeout", "survived", "not reached")))
    left = [mutant for mutant in mutants if mutant.result in ("survived", "not reached")]
    say(f"{len(mutants) - len(left)} of {len(mutants)} were noticed" + ("; these were not:" if left else ""))
    for mutant in left:
        say(mutant)
    return len(left)


def main():
    parser = argparse.ArgumentParser(prog="python3 tools/mutate", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="another one draws other mutants (default: 1)")
    parser.add_argument("--per-folder", type=int, default=10, help="how many of each folder (default: 10)")
    parser.add_argument("--folders", default=",".join(NOTICE), help="of src/trireme (default: %(default)s)")
    parser.add_argument("--skip", metavar="REGEX", help="draw nothing in files whose path matches")
    parser.add_argument("--tests", metavar="REGEX", default="", help="run no other tests than these")
    parser.add_argument("--jobs", type=int, default=1, help="compilers, and later mutants, at a time (default: 1)")
    parser.add_argument("--list", action="store_true", help="show what would be drawn first, and stop")
    parser.add_argument("--only", metavar="N,…", help="try these mutants alone, by number")
    parser.add_argument("--json", metavar="FILE", help="write the results there, too")
    args = parser.parse_args()
    folders = args.folders.split(",")
    if unknown := [folder for folder in folders if folder not in NOTICE]:
        parser.error(f"no tests are known for {unknown[0]}; the folders are: {', '.join(NOTICE)}")
    if args.list:
        for folder in folders:
            for mutant in draw(folder, args.seed, args.per_folder, set(), args.skip):
                say(mutant)
        return 0
    if not (TESTS_BUILD / "build.ninja").exists():
        sys.exit(f"error: {TESTS_BUILD} holds no tests to run: build them first, with ./trireme test -R unit")
    WORK.mkdir(parents=True, exist_ok=True)
    mutants = build_mutants(folders, args)
    if args.only:
        mutants = [mutant for mutant in mutants if str(mutant.number) in args.only.split(",")]
    tests = tests_for({mutant.folder for mutant in mutants}, args.tests)
    run_clean(tests, mutants)
    with ThreadPoolExecutor(args.jobs) as pool:
        list(pool.map(lambda mutant: try_mutant(mutant, tests), mutants))
    left = summarize(mutants)
    if args.json:
        names = ("number", "folder", "path", "line", "before", "after", "result", "by", "seconds")
        results = [{**{name: getattr(each, name) for name in names}, "kind": each.place.kind} for each in mutants]
        Path(args.json).write_text(json.dumps(results, indent=1) + "\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
