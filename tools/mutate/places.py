"""Finds the places of a C++ file where a small mistake can be made, by its tokens: the tree is clang-formatted, so an
operator between spaces is binary, and brackets tell the rest. What the compiler then refuses is dropped later."""

import re
from dataclasses import dataclass

WRONG_INFIX = {  # operator: [(kind, the mistake)]
    "<": [("bound", "a <= b")], "<=": [("bound", "a < b")],
    ">": [("bound", "a >= b")], ">=": [("bound", "a > b")],
    "==": [("negated", "a != b")], "!=": [("negated", "a == b")],
    "+": [("sign", "a - b"), ("dropped term", "a")],
    "-": [("sign", "a + b"), ("dropped term", "a"), ("swapped operands", "b - a")],
    "*": [("factor", "a * b * 2"), ("dropped factor", "a")],
    "/": [("factor", "a / b * 2"), ("dropped factor", "a"), ("swapped operands", "b / a")],
    "%": [("dropped factor", "a")],
}
WAITS = re.compile(r"(?:\b|_)(?:wait|barrier|sync|join|flush|finish|notify|lock|close|reset|clear|free|commit)\w*\(")
KEYWORDS = set("return if else for while do switch case default break continue throw using namespace struct class "
               "enum template static const constexpr auto public private protected try catch friend delete new".split())
SYMMETRIC = set("if for while switch min max swap tie static_cast equal minmax gcd lcm are_same".split())
# Texts for people, and what the compiler computes.
DULL = re.compile(r"\b(?:throw|static_assert|assert|constexpr|consteval)\b|\bfmt::|"
                  r"\b(?:log_|fail|require|descri)\w*\(|\w*(?:message|error|text|words|reason)\w*\(", re.I)


@dataclass
class Place:
    kind: str
    start: int    # offsets in the file; the text between is replaced
    end: int
    wrong: str    # the mistake, as a reader would see it
    switched: str  # C++ with both; @N is the mutant's number


def blank(text):
    """The text, of the same length, without comments, preprocessor lines and the contents of literals."""
    pattern = re.compile(r'//[^\n]*|/\*.*?\*/|^[ \t]*#(?:[^\n]*\\\n)*[^\n]*|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|'
                         r"(?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'", re.S | re.M)

    def cover(match):
        found = match[0]
        if found[0] in "\"'R":
            return '"' + re.sub(r"[^\n]", "_", found[1:-1]) + '"'
        return re.sub(r"[^\n]", " ", found)
    return pattern.sub(cover, text)


def brackets(code):
    """{offset of a bracket: that of its partner}, and {offset of ; { }: the bracket around it}."""
    partner, around, stack = {}, {}, []
    for match in re.finditer(r"[(){}\[\];]", code):
        at, character = match.start(), match[0]
        if character in ")}]" and stack:
            partner[at] = stack.pop()
            partner[partner[at]] = at
        if character in ";}":
            around[at] = code[stack[-1]] if stack else "{"
        if character in "({[":
            stack.append(at)
            if character == "{":
                around[at] = "{"
    return partner, around


def until(code, partner, start, stops):
    """The first offset from `start`, outside nested brackets, where one of `stops` matches."""
    at = start
    while at < len(code):
        if code[at] in "({[" and at in partner:
            at = partner[at]
        elif stops.match(code, at):
            return at
        at += 1
    return at


def order_matters(a, b):
    """Whether one of two statements names what the other one changes: a variable, or the object of another call."""
    def change(statement):
        assigned = re.match(r"\*?([^()]*?) [-+*/|&^%]?= ", statement)
        called = re.match(r"(.*?)(?:\.|->)\w+\(", statement)
        return assigned[1] if assigned else called[1] if called else ""

    def names(statement, changed):
        return changed and re.search(rf"(?<![\w.>]){re.escape(changed)}(?!\w)", statement)
    return a.split("(")[0] != b.split("(")[0] and bool(names(a, change(b)) or names(b, change(a)))


class Finder:
    def __init__(self, text):
        self.text, self.code = text, blank(text)
        self.partner, self.around = brackets(self.code)
        ends = re.compile(r"[;})\]]")
        self.dull = [(m.start(), until(self.code, self.partner, m.start(), ends)) for m in DULL.finditer(self.code)]
        self.places = []

    def add(self, kind, start, end, wrong, switched):
        if not any(first <= end and start <= last for first, last in self.dull):
            self.places.append(Place(kind, start, end, wrong, switched))

    def find(self):
        self.find_infix()
        self.find_conditions()
        self.find_literals()
        self.find_arguments()
        self.find_statements()
        return self.places

    def find_infix(self):
        for match in re.finditer(r"(?<=[\w)\]}] )([<>=!]=|[-+*/%<>])(?=\s+[\w(!*&~-])", self.code):
            for kind, wrong in WRONG_INFIX.get(match[1], []):
                plain = re.fullmatch(r"a (\S+) b", wrong)
                self.add(kind, *match.span(1), plain[1] if plain else f"/* a {match[1]} b becomes {wrong} */",
                         f"{match[1]} TRIREME_MUTANT(@N, a {match[1]} b, {wrong}) {match[1]}")
        for match in re.finditer(r"(?<=[\s(!\[])!(?=[\w(*:])", self.code):
            self.add("dropped !", match.start(), match.end(), "", "trireme::mutants::Negation{@N} ->* ")

    def find_conditions(self):
        for match in re.finditer(r"\bif \(", self.code):
            start, end = match.end(), self.partner.get(match.end() - 1, 0)
            inside = self.code[start:end]
            if ";" not in inside and not re.search(r"(?<![=!<>])=(?!=)", inside):
                self.add("negated", start, end, f"!({self.text[start:end]})",
                         f"trireme::mutants::on(@N) != static_cast<bool>({self.text[start:end]})")
        for match in re.finditer(r" (&&|\|\|)\s+", self.code):
            tighter = "&&|" if match[1] == "&&" else ""  # of a || b && c the right term is b && c
            end = until(self.code, self.partner, match.end(), re.compile(tighter + r"\|\||(?<!:):(?!:)|[?;,)\]}]"))
            term = self.text[match.end():end].rstrip()
            left = "trireme::mutants::on(@N) ||" if match[1] == "&&" else "!trireme::mutants::on(@N) &&"
            self.add("dropped condition", match.end(), match.end() + len(term),
                     "true" if match[1] == "&&" else "false", f"({left} ({term}))")

    def find_literals(self):
        for match in re.finditer(r"(?<=[=(\[,+-] )(\d+)(?=[;,)\]])|(?<=[\[(])(\d+)(?=[,)\]])", self.code):
            wrong = str(int(match[0]) + 1)
            self.add("off by one", *match.span(), wrong, f"(trireme::mutants::on(@N) ? {wrong} : {match[0]})")

    def find_arguments(self):
        simple = re.compile(r"\s*[\w.>:\[\]()*&-]+\Z")
        for match in re.finditer(r"\b(\w+)\((?=\w)", self.code):
            if match[1] in SYMMETRIC or match.end() - 1 not in self.partner:
                continue
            close, spans, at = self.partner[match.end() - 1], [], match.end()
            while at < close:
                end = min(until(self.code, self.partner, at, re.compile(r"[,)]")), close)
                spans.append((at + len(self.code[at:end]) - len(self.code[at:end].lstrip()), end))
                at = end + 1
            for (first, comma), (second, last) in zip(spans, spans[1:]):
                a, b = self.text[first:comma].strip(), self.text[second:last].strip()
                if a != b and simple.match(a) and simple.match(b) and not re.match(r"[\d_]+$", a + b):
                    on = "trireme::mutants::on(@N)"
                    self.add("swapped arguments", first, last, f"{b}, {a}", f"{on} ? {b} : {a}, {on} ? {a} : {b}")

    def find_statements(self):
        starts = {at + 1: True for at, around in self.around.items() if around == "{"}
        for match in re.finditer(r"\b(?:if|for|while) \(", self.code):
            starts.setdefault(self.partner.get(match.end() - 1, -1) + 1, False)
        for match in re.finditer(r"\belse\b", self.code):
            starts.setdefault(match.end(), False)
        previous = None
        for at, in_block in sorted(starts.items()):
            start = at + len(self.code[at:]) - len(self.code[at:].lstrip())
            end = self.statement_end(start)
            if end is None:
                previous = None
                continue
            # One line, without comments: the code says where they are.
            pairs = zip(self.text[start:end], self.code[start:end])
            said = re.sub(r"\s+", " ", "".join(" " if c == " " else t for t, c in pairs))
            kind = "skipped wait" if WAITS.search(self.code[start:end]) else "skipped statement"
            self.add(kind, start, end, "/* skipped */", f"trireme::mutants::on(@N) ? void() : void({said})")
            follows = in_block and previous and self.code[previous[1] + 1:start].isspace()
            if follows and order_matters(previous[2], said):
                a, b = previous[2], said
                self.add("swapped statements", previous[0], end, f"{b}; {a}",
                         f"if (trireme::mutants::on(@N)) {{ {b}; {a}; }} else {{ {a}; {b}; }}")
            previous = (start, end, said) if in_block else None

    def statement_end(self, start):
        """Of a call or an assignment that is a whole statement: where its ; is. None for anything else."""
        code, at = self.code, start
        match = re.compile(r"\*?[A-Za-z_]\w*(?:::\w+)*").match(code, at)
        if not match or match[0].split("::")[0] in KEYWORDS:
            return None
        at, called = match.end(), False
        while at < len(code):
            more = re.compile(r"(?:\s*(?:\.|->)\w+|<[\w:, ]+>(?=\())").match(code, at)
            if code[at] in "([" and at in self.partner:
                called, at = code[at] == "(", self.partner[at] + 1
            elif more:
                called, at = False, more.end()
            else:
                break
        if code[at] == ";" and called:
            return at
        if re.compile(r" (?:[-+*/|&^%]?=)\s").match(code, at):
            end = until(code, self.partner, at, re.compile(r"[;}]"))
            return end if code[end:end + 1] == ";" else None
        return None
