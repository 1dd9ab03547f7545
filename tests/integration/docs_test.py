"""The documents are true where a machine can tell: links, commands, flags, files, tests and variables exist."""
# ctest: timeout=120

import functools
import os
import re
import shlex
import subprocess
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TRIREME = os.path.join(os.environ["TRIREME_BIN_DIR"], "trireme")
ENVIRONMENT = {k: v for k, v in os.environ.items() if not k.startswith(("TRIREME_", "OMPI_", "SLURM_"))}
FOLDERS = ["docs", "src", "tests", "examples", "bench", "tools", "cmake"]
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.md"))])
# These name files of this tree only; CONTRIBUTING.md also shows what a new file would be called.
EXACT = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]

FENCE = re.compile(r"^\s*(```+|~~~+)\s*([\w+-]*)")
SHELL = {"console", "sh", "bash", "shell"}
OWN = ("trireme", "./trireme")


def fences(text):
    """(language, first line number, lines) of each fenced block."""
    block = None
    for number, line in enumerate(text.splitlines(), 1):
        match = FENCE.match(line)
        if block is None and match:
            block = (match[2], number + 1, [])
        elif match and not match[2]:
            yield block
            block = None
        elif block is not None:
            block[2].append(line)


def prose(text):
    """The text without fenced blocks, line by line."""
    inside = False
    for number, line in enumerate(text.splitlines(), 1):
        if FENCE.match(line):
            inside = not inside
        elif not inside:
            yield number, line


def slug(heading):
    """The anchor that GitHub makes of a heading."""
    heading = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "").strip().lower()
    return re.sub(r"[^\w\- ]", "", heading).replace(" ", "-")


def anchors(document):
    return {slug(line.lstrip("#")) for _, line in prose(document.read_text()) if line.startswith("#")}


def code_spans(document):
    for number, line in prose(document.read_text()):
        for span in re.findall(r"`([^`]+)`", line):
            yield number, span


def place(document, number):
    return f"{document.relative_to(ROOT)}:{number}"


class Links(unittest.TestCase):
    def test_lead_somewhere(self):
        seen = 0
        for document in DOCUMENTS:
            for number, line in prose(document.read_text()):
                line = re.sub(r"`[^`]*`", "", line)
                for target in re.findall(r"\]\(\s*<?([^)\s>]+)", line) + re.findall(r'(?:src|href)="([^"]+)"', line):
                    if re.match(r"[a-z]+:", target):
                        continue
                    path, _, anchor = target.partition("#")
                    file = (document.parent / path).resolve() if path else document
                    with self.subTest(place(document, number), target=target):
                        self.assertTrue(file.exists(), "no such file")
                        self.assertIn(ROOT, [file, *file.parents], "outside the tree")
                        if anchor and file.suffix == ".md":
                            self.assertIn(anchor, anchors(file), "no such heading")
                    seen += 1
        self.assertGreater(seen, 0)


class Index(unittest.TestCase):
    def test_lists_every_page(self):
        listed = set(re.findall(r"\]\((\w+\.md)\)", (ROOT / "docs" / "README.md").read_text()))
        pages = {page.name for page in (ROOT / "docs").glob("*.md")} - {"README.md"}
        self.assertEqual(listed, pages)

    def test_the_first_page_stays_short(self):
        self.assertLessEqual(len((ROOT / "README.md").read_text().splitlines()), 90)


class FirstHour(unittest.TestCase):
    def test_counts_its_lines(self):
        section = (ROOT / "docs/architecture.md").read_text().split("## The first hour")[1].split("\n## ")[0]
        table = [line for line in section.splitlines() if line.startswith("| `")]
        files = re.findall(r"`((?:src|examples)/[^`]+)`", "\n".join(table))
        lines = sum(len((ROOT / file).read_text().splitlines()) for file in files)
        said = int(re.search(r"about ([\d,]+) lines", section)[1].replace(",", ""))
        self.assertGreater(len(files), 10)
        self.assertLess(abs(lines / said - 1), 0.05, f"{len(files)} files have {lines} lines")


class Command:
    """One invocation of trireme as a document shows it."""

    def __init__(self, words):
        self.script = words[0] == "./trireme"
        self.words = words[1:]


def commands_in(lines, amid_output=False):
    """The invocations in the lines of a fenced block; what is behind two spaces or # explains."""
    joined, held = [], ""
    for line in lines:
        held += line.strip()
        if held.endswith("\\"):
            held = held[:-1] + " "
        else:
            joined.append(held)
            held = ""
    for line in joined:
        if amid_output and not re.match(rf"\$ |(\./)?trireme ({'|'.join(subcommands())}|test|-)", line):
            continue
        line = re.split(r"\s{2,}|\s#\s", re.sub(r"^(\w+)?[$#]\s+", "", line))[0]
        if not re.search(r"(^|\s)(\./)?trireme\s", line + " "):
            continue
        try:
            words = shlex.split(line)
        except ValueError:  # prose with an apostrophe: not a command
            continue
        for part in split_at(words, ("|", "||", "&&", ";", "&")):
            part = [word for word in part if not re.match(r"[A-Z_]+=", word)]
            starts_here = part[:1] and (part[0] in OWN or part[0] in ("torchrun", "srun", "mpirun", "time", "nice"))
            for index, word in enumerate(part):
                if word in OWN and starts_here:
                    yield Command(part[index:])
                    break


def split_at(words, separators):
    part = []
    for word in words:
        if word in separators:
            yield part
            part = []
        else:
            part.append(word)
    yield part


@functools.cache
def help_of(*path):
    result = subprocess.run([TRIREME, *path, "--help"], capture_output=True, text=True, timeout=60, env=ENVIRONMENT)
    assert result.returncode == 0, result
    return result.stdout


@functools.cache
def subcommands(*path):
    prefix = " ".join(["trireme", *path])
    return set(re.findall(rf"^  {re.escape(prefix)} ([\w-]+)  ", help_of(*path), re.MULTILINE))


@functools.cache
def flags(*path):
    """{flag: whether it takes "no", "a" or "maybe a" value}."""
    found = {}
    for names, value in re.findall(r"^  ((?:--?[\w-]+(?:, )?)+)( \[?[A-Z][^\s]*)?", help_of(*path), re.MULTILINE):
        kind = "no" if not value else "maybe a" if value.startswith(" [") else "a"
        for name in names.split(", "):
            found[name] = kind
    return found


@functools.cache
def positionals(*path):
    """How many arguments without dashes it takes: those that --help has in capitals, and FILE.toml. -1: any number."""
    named = re.findall(r"^  [A-Z]+( \.\.\.)?  ", help_of(*path), re.MULTILINE)
    return -1 if any(named) else len(named) + (1 if takes_keys(*path) else 0)


def takes_keys(*path):
    """The commands that read a config: FILE.toml and --section.key."""
    return path in (("train",), ("verify",), ("bench", "train"), ("simulate",), ("plan",))


@functools.cache
def keys():
    """{section.key: its type}, as docs/config.md lists them."""
    found, section = {}, ""
    for line in (ROOT / "docs" / "config.md").read_text().splitlines():
        if match := re.fullmatch(r"## \[(\w+)\]", line):
            section = match[1]
        elif match := re.match(r"\| `(\w+)` \| ([a-z ]+) \| `", line):
            found[f"{section}.{match[1]}"] = match[2]
    return found


def fault_in(command):
    """What is wrong with an invocation; None if nothing."""
    words = list(command.words)
    if command.script and words[:1] == ["test"]:
        script = (ROOT / "trireme").read_text()
        own = [word for word in words[1:] if word == "--slow"]
        return None if "== test" in script and all(word in script for word in own) else "the script has no test --slow"
    path = []
    while words and words[0] in subcommands(*path):
        path.append(words.pop(0))
    if subcommands(*path) and words and not words[0].startswith("-"):
        return f"no command {' '.join(['trireme', *path, words[0]])}"
    known = flags(*path)
    arguments = 0
    while words:
        word = words.pop(0)
        if word in (">", ">>", "2>"):
            break
        if word == "--" or (path == ["launch"] and not word.startswith("-")):
            return None  # a program of the user, and its own arguments
        name, _, value = word.partition("=")
        if not word.startswith("-"):
            arguments += 1
            if arguments > positionals(*path) >= 0:
                return f"trireme {' '.join(path)} takes no argument {word}"
            if takes_keys(*path) and not word.endswith(".toml"):
                return f"{word} is no config file"
            continue
        if takes_keys(*path) and "." in name:
            if name[2:] not in keys():
                return f"there is no key {name[2:]}"
            if not value and words and not words[0].startswith("--"):
                words.pop(0)
            elif not value and keys()[name[2:]] != "switch":
                return f"{name} needs a value"
            continue
        if name not in known:
            return f"trireme {' '.join(path)} has no flag {name}"
        if known[name] == "a" and not value:
            if not words or words[0].startswith("--"):
                return f"{name} needs a value"
            words.pop(0)
        elif known[name] == "maybe a" and words and not words[0].startswith("-"):
            words.pop(0)
    return None


class Commands(unittest.TestCase):
    def test_exist(self):
        seen = 0
        for document in DOCUMENTS:
            for language, number, lines in fences(document.read_text()):
                if language not in SHELL and language != "":
                    continue
                for command in commands_in(lines, amid_output=language == ""):
                    with self.subTest(place(document, number), command=" ".join(command.words)):
                        self.assertIsNone(fault_in(command))
                    seen += 1
        self.assertGreater(seen, 5)

    def test_in_sentences_exist(self):
        for document in EXACT:
            for number, span in code_spans(document):
                if not span.startswith(("trireme ", "./trireme ")) or re.search(r"[A-Z]{3,}|…", span):
                    continue
                for command in commands_in([span]):
                    with self.subTest(place(document, number), command=span):
                        self.assertIsNone(fault_in(command))

    def test_wrong_ones_would_be_noticed(self):
        for line in ["trireme tarin", "trireme train --step 3", "trireme train my.txt", "trireme train a.toml b.toml",
                     "trireme train --train.stepz=3", "trireme train --train.steps", "trireme verify --a",
                     "trireme checkpoint diff a b c", "trireme checkpoint inspect --train.steps=3",
                     "trireme checkpoint show a", "trireme bench com", "trireme doctor extra",
                     "./trireme bench comm --ranks", "$ TRIREME_LOG=debug trireme launch --nproc 2 -- ./program",
                     "torchrun --nproc-per-node 2 trireme train --nope", "trireme test"]:
            found = list(commands_in([line]))
            self.assertEqual(len(found), 1, line)
            self.assertIsNotNone(fault_in(found[0]), line)
        for line in ["trireme train my.toml --train.steps=3 --optimizer.lr 3e-4 --parallel.overlap --nproc 4",
                     "trireme train --resume runs/default-1", "trireme train --resume auto --nproc 1",
                     "trireme verify --a dp=1 --b dp=2 --model gpt2-tiny", "trireme checkpoint diff a b --json",
                     "trireme", "trireme bench comm --write-cluster --ranks 2,4 > table.txt", "./trireme test -R comm",
                     "trireme launch --nproc-per-node=2 ./program --its flags", "trireme doctor --json | jq ."]:
            for command in commands_in([line]):
                self.assertIsNone(fault_in(command), line)


def braces(pattern):
    """a{b,c} as ab, ac: what a shell would make of it."""
    match = re.search(r"\{([^{}]*,[^{}]*)\}", pattern)
    if not match:
        return [pattern]
    return [each for part in match[1].split(",")
            for each in braces(pattern[:match.start()] + part + pattern[match.end():])]


class Names(unittest.TestCase):
    def test_files_exist(self):
        top = {entry.name for entry in ROOT.iterdir() if entry.is_dir()}
        folders = {entry.name for entry in (ROOT / "src" / "trireme").iterdir() if entry.is_dir()}
        seen = 0
        for document in EXACT:
            for number, span in code_spans(document):
                if not re.fullmatch(r"[\w./{},*-]+/[\w./{},*-]*", span) or re.search(r"[A-Z]{3,}(?!\.md)", span):
                    continue
                first = span.split("/")[0]
                base = ROOT if first in top and first not in ("build", "runs") else ROOT / "src" / "trireme" if first in folders else None
                if base is None:
                    continue
                for pattern in braces(span.rstrip("/")):
                    with self.subTest(place(document, number), file=span):
                        self.assertTrue(list(base.glob(pattern)), "no such file")
                seen += 1
        self.assertGreater(seen, 20)

    def test_tests_exist(self):
        sources = "".join(file.read_text() for folder in ("src", "tests") for kind in ("cpp", "py")
                          for file in sorted((ROOT / folder).rglob(f"*_test.{kind}")))
        seen = 0
        for document in EXACT:
            for number, span in code_spans(document):
                with self.subTest(place(document, number), test=span):
                    if match := re.fullmatch(r"([A-Z]\w+)\.(test_\w+)", span):
                        self.assertTrue(f"class {match[1]}(" in sources and f"def {match[2]}(" in sources)
                    elif match := re.fullmatch(r"([A-Z]\w+)\.([A-Z]\w+)", span):
                        self.assertTrue(re.search(rf"TEST(_F|_P)?\({match[1]}, {match[2]}\)", sources))
                    elif match := re.fullmatch(r"(integration|faults|numerics|regressions|install)\.(\w+)", span):
                        self.assertTrue([*(ROOT / "tests" / match[1]).glob(f"{match[2]}_test.*"),
                                         *(ROOT / "tests" / match[1]).glob(f"{match[2]}.sh")])
                    elif match := re.fullmatch(r"unit\.(\w+)", span):
                        self.assertTrue((ROOT / "src" / "trireme" / match[1]).is_dir())
                    else:
                        continue
                    seen += 1
        self.assertGreater(seen, 10)

    def test_notes_exist(self):
        sources = "".join(file.read_text() for file in (ROOT / "src").rglob("*.*") if file.suffix in (".h", ".cpp"))
        for document in EXACT:
            for number, span in code_spans(document):
                if span.startswith("[Note: "):
                    with self.subTest(place(document, number)):
                        self.assertTrue(f"// {span}\n" in sources, "no such note")

    def test_variables_are_those_of_the_code(self):
        table = set(re.findall(r"TRIREME_[A-Z_]+", (ROOT / "docs" / "communication.md").read_text()))
        read = set()
        for file in (ROOT / "src").rglob("*.cpp"):
            if not file.name.endswith("_test.cpp"):
                read |= set(re.findall(r'"(TRIREME_[A-Z_]+)"', file.read_text()))
        self.assertLessEqual(read, table, "docs/communication.md does not explain these")
        everything = "".join(file.read_text(errors="ignore") for folder in ("src", "tests", "cmake", "tools", "bench")
                             for file in (ROOT / folder).rglob("*") if file.is_file() and file != Path(__file__).resolve())
        everything += (ROOT / "trireme").read_text()
        for name in sorted(table):
            self.assertTrue(name in everything, f"nothing reads {name}")


if __name__ == "__main__":
    unittest.main()
