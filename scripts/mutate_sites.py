# mutate_sites.py - where scripts/mutate can change a C source, and how: a lexer, the operators, the draw.
"""Works on tokens, not on a syntax tree, because half of the code is in arguments of macros (PB_TRY), for which a
compiler's tree gives no source positions. It relies on the layout of scripts/format: a binary operator has a space on
both sides, a unary one has not. A change that is not valid C gets the verdict not-compiled."""
import bisect
import collections
import hashlib
import os
import re

OPERATORS = {
    "compare": "< and <=, > and >=, == and != are exchanged",
    "boolean": "&& and || are exchanged",
    "negate": "the condition of an if is negated, the two values of ?: are exchanged",
    "arithmetic": "+ and -, * and /, << and >> are exchanged",
    "constant": "a number becomes one more, one less, twice as much, or 0; true and false are exchanged",
    "drop": "a statement that is a call is left out",
    "status": "a pb_status that is returned becomes PB_OK",
}
SWAPS = {"compare": {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="},
         "boolean": {"&&": "||", "||": "&&"},
         "arithmetic": {"+": "-", "-": "+", "*": "/", "/": "*", "%": "*", "<<": ">>", ">>": "<<", "+=": "-=", "-=": "+="}}
SWAP = {token: (operator, other) for operator, table in SWAPS.items() for token, other in table.items()}

TOKEN = re.compile(r"""
    (?P<skip>\s+|//[^\n]*|/\*.*?\*/|^[ \t]*\#(?:[^\\\n]|\\.)*)
  | (?P<text>L?"(?:[^"\\]|\\.)*"|L?'(?:[^'\\]|\\.)*')
  | (?P<name>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<punct>->|\+\+|--|<<=|>>=|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||\.\.\.|.)
""", re.X | re.S | re.M)

# Calls whose arguments are not changed: error messages; allocation and release (ASan finds sizes that are too small,
# and leaks); and what generates no code.
QUIET = re.compile(r"^(pb_fail\w*|\w*alloc|\w*free|\w+_destroy|fclose|closedir|json_decref|va_\w+|assert|static_assert"
                   r"|_Static_assert|sizeof|offsetof|__attribute__)$")
CONTROL = ("if", "for", "while", "switch", "return", "sizeof", "do", "else", "case", "goto")

Token = collections.namedtuple("Token", "kind text start end")
# line: its text; nth: number of the earlier lines with equal text; at: line number. before, after: the changed lines,
# with white space collapsed. new: the text that replaces start..end.
Site = collections.namedtuple("Site", "file function at line nth operator before after start end new")


def key(file, function, operator, before, after):
    """Identifies a site in tests/mutations/equivalent.csv; stays the same when the file moves or a comment changes."""
    return os.path.basename(file), function, operator, uncommented(before), uncommented(after)


def key_of(site):
    return key(site.file, site.function, site.operator, site.before, site.after)


def uncommented(code):
    return " ".join(re.sub(r"/\*.*?(\*/|$)|//.*", " ", code).split())


def tokens_of(source):
    out = []
    for m in TOKEN.finditer(source):
        if m.lastgroup != "skip":
            out.append(Token(m.lastgroup, m.group(), m.start(), m.end()))
    return out


class Source:
    """The tokens of one file, which bracket closes which, and where its functions are."""

    def __init__(self, file, text):
        self.file, self.text, self.tokens = file, text, tokens_of(text)
        self.match, self.function = self.brackets(), ""
        self.functions = list(self.bodies())
        self.starts = [0] + [m.end() for m in re.finditer("\n", text)]
        self.lines = text.split("\n")
        seen = collections.Counter()
        self.nth = []  # of each line
        for line in self.lines:
            self.nth.append(seen[line.strip()])
            seen[line.strip()] += 1

    def brackets(self):
        match, open_ = {}, []
        for i, t in enumerate(self.tokens):
            if t.kind == "punct" and t.text in "([{":
                open_.append(i)
            elif t.kind == "punct" and t.text in ")]}" and open_:
                match[i] = open_.pop()
                match[match[i]] = i
        return match

    def bodies(self):
        """(name, first token, last token, whether it returns pb_status) of every function."""
        i, begin = 0, 0  # begin: start of the current declaration
        while i < len(self.tokens):
            text = self.tokens[i].text
            if text == "{":
                if i and self.tokens[i - 1].text == ")":
                    head = [t.text for t in self.tokens[begin:self.match.get(i - 1, i)]]
                    is_status = "pb_status" in head and "*" not in head
                    yield head[-1] if head else "", i, self.match.get(i, len(self.tokens) - 1), is_status
                i = self.match.get(i, i)
                begin = i + 1
            elif text == ";":
                begin = i + 1
            i += 1

    def line(self, offset):
        return bisect.bisect_right(self.starts, offset)  # from 1

    def is_(self, i, *texts):
        return 0 <= i < len(self.tokens) and self.tokens[i].text in texts

    def site(self, operator, start, end, new):
        first, last = self.line(start), self.line(max(start, end - 1))
        begin = self.starts[first - 1]
        stop = self.starts[last] if last < len(self.starts) else len(self.text)
        before = " ".join(self.text[begin:stop].split())
        after = " ".join((self.text[begin:start] + new + self.text[end:stop]).split())
        new += "\n" * (self.text.count("\n", start, end) - new.count("\n"))  # lines keep their numbers
        return Site(self.file, self.function, first, self.lines[first - 1].strip(), self.nth[first - 1], operator, before,
                    after, start, end, new)


# ---- the operators --------------------------------------------------------------------------------------------


def spaced(source, token):
    return source.text[token.start - 1] in " \n" and source.text[token.end:token.end + 1] in " \n"


def swaps(source, i):
    t = source.tokens[i]
    if t.kind == "punct" and t.text in SWAP and spaced(source, t):
        operator, other = SWAP[t.text]
        yield source.site(operator, t.start, t.end, other)


def declared_size(source, i):
    """Whether this number is the length of an array that is declared: a longer one changes nothing."""
    if not (source.is_(i - 1, "[") and source.is_(i + 1, "]")):
        return False
    while i > 0 and not source.is_(i - 1, ";", "{", "}", "("):
        i -= 1
    first, second = source.tokens[i], source.tokens[i + 1]
    return first.kind == second.kind == "name" and first.text not in CONTROL


def constants(source, i):
    t = source.tokens[i]
    if t.kind == "name" and t.text in ("true", "false"):
        yield source.site("constant", t.start, t.end, "false" if t.text == "true" else "true")
    if t.kind != "number" or declared_size(source, i) or (source.is_(i - 1, "{") and source.is_(i + 1, "}")):
        return  # {0} sets everything to zero, {1} would only set the first
    whole = re.fullmatch(r"(0[xX][0-9a-fA-F]+|\d+)([uUlL]*)", t.text)
    if whole:
        value = int(whole[1], 8 if re.match("0[0-7]", whole[1]) else 0)
        for other in sorted({value + 1, value - 1, 2 * value, 0} - {value, -1}):
            yield source.site("constant", t.start, t.end, str(other) + whole[2])
    elif re.fullmatch(r"[\d.]+(?:[eE][-+]?\d+)?f?", t.text):
        value = float(t.text.rstrip("f"))
        for other in ("0.0", f"{2 * value!r}") if value else ("1.0",):
            yield source.site("constant", t.start, t.end, other + ("f" if t.text.endswith("f") else ""))


def negations(source, i):
    if source.is_(i, "if") and source.is_(i + 1, "("):
        start, end = source.tokens[i + 1].start, source.tokens[source.match[i + 1]].end
        yield source.site("negate", start, end, "(!" + source.text[start:end] + ")")
    if source.is_(i, "?"):
        colon, end = halves(source, i)
        if colon:
            first = source.text[source.tokens[i].end:source.tokens[colon].start].strip()
            second = source.text[source.tokens[colon].end:source.tokens[end].start].strip()
            yield source.site("negate", source.tokens[i].end, source.tokens[end].start, f" {second} : {first}")


def halves(source, i):
    """For a ?: at token i: the colon, and the token after the whole expression; None if it contains another ?:."""
    colon, at = None, i + 1
    while at < len(source.tokens):
        if source.is_(at, "?"):
            return None, None
        if source.is_(at, ":"):
            if colon:
                break
            colon = at
        if source.is_(at, ";", ",", ")", "]", "}"):
            break
        at = source.match[at] + 1 if source.is_(at, "(", "[", "{") else at + 1
    return colon, at


def dropped_calls(source, i):
    """Where token i begins a statement that is one call."""
    t = source.tokens[i]
    if t.kind != "name" or t.text in CONTROL or not source.is_(i + 1, "("):
        return
    close = source.match[i + 1]
    after_condition = source.is_(i - 1, ")") and source.is_(source.match.get(i - 1, 0) - 1, "if", "for", "while")
    if source.is_(close + 1, ";") and (after_condition or source.is_(i - 1, ";", "{", "}", "else", "do")):
        yield source.site("drop", t.start, source.tokens[close].end, "")


def statuses(source, i, is_status):
    if not is_status or not source.is_(i, "return"):
        return
    end = i
    while not source.is_(end, ";"):
        end = source.match[end] + 1 if source.is_(end, "(", "{", "[") else end + 1
    value = source.text[source.tokens[i].end:source.tokens[end].start]
    if value.strip() != "PB_OK" and "PB_ENOMEM" not in value:  # malloc does not fail in tests
        yield source.site("status", source.tokens[i].end, source.tokens[end].start, " PB_OK")


def sites(file, text):
    """Every site of a file, in the order of its text."""
    source = Source(file, text)
    for source.function, first, last, is_status in source.functions:
        i = first + 1
        while i < last:
            t = source.tokens[i]
            if t.kind == "name" and QUIET.match(t.text) and source.is_(i + 1, "("):
                i = source.match[i + 1] + 1
                continue
            yield from statuses(source, i, is_status)
            yield from dropped_calls(source, i)
            yield from negations(source, i)
            yield from swaps(source, i)
            yield from constants(source, i)
            i += 1


# ---- the draw -------------------------------------------------------------------------------------------------


def number_of(*parts):
    return hashlib.sha256("\0".join(str(p) for p in parts).encode()).digest()


def draw(all_sites, seed):
    """One site of each line that has any, in a random order that the seed decides. Within a line, each operator is
    equally likely, and so is each site of that operator. The first n sites are the draw of n. The site that is drawn
    for a line depends only on the seed and the line's text, so changes elsewhere do not affect it."""
    lines = collections.defaultdict(lambda: collections.defaultdict(list))
    for s in all_sites:
        lines[s.file, s.line, s.nth][s.operator].append(s)
    drawn = []
    for line, by_operator in lines.items():
        mixed = number_of(seed, *line)
        operators = sorted(by_operator)
        of_one = by_operator[operators[mixed[0] % len(operators)]]
        drawn.append((mixed[2:], of_one[mixed[1] % len(of_one)]))
    return [s for _, s in sorted(drawn, key=lambda d: d[0])]
