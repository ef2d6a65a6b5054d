# mutant_records.py - reads tests/mutations/*.mut and tests/slowdowns/*.mut, and applies records to the sources;
# scripts/mutants and scripts/gate-score describe the records.
"""Old lines are compared token by token, without white space and comments, inside one function. So a record still fits
after a file was moved or reformatted, or after its comments were rewritten."""
import bisect
import collections
import functools
import glob
import os
import re
import subprocess

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
KEYS = ("mutation", "breaks", "test", "gpu-test", "in")
BEGINS = ("mutation", "slowdown", "harmless")
SPEED_KEYS = ("slowdown", "harmless", "is", "bench", "gpu-bench", "folder", "in")
C_FILE = re.compile(r"\.(c|h|cu|cuh|def)$")
C_TOKEN = re.compile(r'(?s:/\*.*?\*/)|//[^\n]*|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\'|\w+|[^\w\s]')
SCRIPT_TOKEN = re.compile(r'(?<!\S)#[^\n]*|"(?:\\.|[^"\\\n])*"|\'[^\'\n]*\'|\w+|[^\w\s]')
DIRECTIVE = re.compile(r"^[ \t]*#[ \t]*(?:define[ \t]+(\w+))?(?:[^\\\n]|\\.)*", re.M | re.S)
REST_OF_LINE = {True: re.compile(r"[ \t]*(?:/\*[^\n]*?\*/[ \t]*|//[^\n]*)?(?=\n|\Z)"),
                False: re.compile(r"[ \t]*(?:(?<=\s)#[^\n]*)?(?=\n|\Z)")}

Token = collections.namedtuple("Token", "text start end")
Edit = collections.namedtuple("Edit", "file function lines at")  # lines: (mark, text); at: FILE:LINE of the record


class Record:
    def __init__(self, name, at, kind):
        self.name, self.at, self.kind, self.edits, self.text = name, at, kind, [], ""
        self.breaks, self.tests, self.gpu_test = "", [], ""  # of a mutation
        self.what, self.bench, self.gpu_bench, self.folder = "", "", "", ""  # of a slowdown or a harmless change

    def counted(self):
        """The options of bench that count the instructions of the cases of `bench`, as words; None: its suite is not
        counted. Counting has one thread. Suite kernels takes the tests' shapes in place of those of its grids: all of
        them, because the first ones are too small to show most changes."""
        options = re.sub(r"--(threads|grid) \S+|--axis shape=\S+", "", self.bench).split()
        more = {"kernels": ["--grid", "full"], "backward": []}
        return next((options + more[suite] for suite in more if suite in options), None)

    def gated_by_sessions(self, device):
        """Whether stored sessions gate the times of the record's cases: not those of suites kernels and attention."""
        return not {"kernels", "attention"} & set((self.gpu_bench if device == "cuda" else self.bench).split())


class Error(Exception):
    pass


# ---- reading -------------------------------------------------------------------------------------------------


def parse(path, text, keys=KEYS):
    """The records of one file. keys: the words that may begin a line."""
    records, place, open_edit = [], None, False
    for number, line in enumerate(text.split("\n"), 1):
        at = f"{path}:{number}"
        key, _, value = (part.strip() for part in line.partition(":"))
        if line[:1] in ("-", "+", "=") and line[1:2] in ("", " "):
            if place is None:
                raise Error(f"{at}: an edit needs an 'in:' line above it")
            if not open_edit:
                records[-1].edits.append(Edit(*place, [], at))
            records[-1].edits[-1].lines.append((line[0], line[2:]))
            open_edit = True
        elif line.strip() == "" or line.startswith("#"):
            open_edit = False
            continue
        elif key not in keys or (key not in BEGINS and not records):
            raise Error(f"{at}: '{line}' is not a line of a record")
        else:
            open_edit = False
            if key in BEGINS:
                records.append(Record(value, at, key))
                place = None
            elif key == "in":
                place = (value.split() + [None])[:2]
            else:
                field(records[-1], key, value)
        records[-1].text += line + "\n"
    return records


def field(record, key, value):
    if key == "test":
        record.tests.append(value)
    else:
        setattr(record, {"gpu-test": "gpu_test", "gpu-bench": "gpu_bench", "is": "what"}.get(key, key), value)


def incomplete(r):
    """The parts that a record lacks, as text; None: it is complete."""
    if r.kind == "mutation":
        whole = r.breaks and r.edits and (r.tests or r.gpu_test)
        return None if whole else "a 'breaks:' line, a 'test:' or 'gpu-test:' line, and an edit"
    whole = r.what and (r.bench or r.gpu_bench) and (r.edits or r.folder)
    return None if whole else "an 'is:' line, a 'bench:' or 'gpu-bench:' line, and an edit or a 'folder:' line"


def load(folder="mutations", keys=KEYS):
    """All records of tests/FOLDER, sorted by name. Raises Error for an incomplete record and for two records with one
    name."""
    records = {}
    for path in sorted(glob.glob(os.path.join(ROOT, "tests", folder, "*.mut"))):
        with open(path, encoding="utf-8") as f:
            for r in parse(os.path.relpath(path, ROOT), f.read(), keys):
                if r.name in records:
                    raise Error(f"{r.at}: the name {r.name} is already used at {records[r.name].at}")
                if incomplete(r):
                    raise Error(f"{r.at}: {r.name} needs {incomplete(r)}")
                records[r.name] = r
    return [records[name] for name in sorted(records)]


def load_speed():
    """The records of tests/slowdowns."""
    return load("slowdowns", SPEED_KEYS)


# ---- where a function is ----------------------------------------------------------------------------------------


def tokens_of(text, is_c):
    found = (C_TOKEN if is_c else SCRIPT_TOKEN).finditer(text)
    comments = ("/*", "//") if is_c else ("#",)
    # In a script a single # is a token where it does not begin a word, as in $#.
    return [Token(m.group(), m.start(), m.end()) for m in found
            if not m.group().startswith(comments) or (m.group() == "#" and text[m.start() - 1:m.start()].strip())]


def head_name(head):
    """(name of what a { opens, whether functions may be inside), from the tokens of its declaration."""
    for i, word in enumerate(head):
        if word in ("namespace", "extern") and "(" not in head:
            return "", True
        if word in ("struct", "class", "union", "enum") and not {"(", "="} & set(head):
            return (head[i + 1] if i + 1 < len(head) else ""), True
    if "=" in head:
        before = head[:head.index("=")]
        return (before[:before.index("[")] if "[" in before else before)[-1], False
    depth = 0
    for i in range(len(head) - 1, 0, -1):
        depth += (head[i] == ")") - (head[i] == "(")
        if head[i] == "(" and depth == 0:  # SUFFIXED(name)(arguments) is a function too
            return head[i - 2 if head[i - 1] == ")" else i - 1], False
    return "", False


def c_spans(text, tokens):
    """(name, start, end) of every function, table, struct and macro of a C file."""
    directives = [(m.start(), m.end(), m[1]) for m in DIRECTIVE.finditer(text)]
    spans = [(name, start, end) for start, end, name in directives if name]
    starts, head, depth, opened = [d[0] for d in directives], [], 0, None
    for t, following in zip(tokens, tokens[1:] + tokens[-1:]):
        d = bisect.bisect_right(starts, t.start) - 1
        if d >= 0 and t.start < directives[d][1]:
            continue
        if depth > 0:
            depth += (t.text == "{") - (t.text == "}")
            if depth == 0:
                spans.append((opened[0], opened[1], following.end if following.text == ";" else t.end))
                head = []
        elif t.text == "{":
            name, inside = head_name([h.text for h in head])
            if inside and name:
                spans.append((name, head[0].start, closing(tokens, t)))
            if not inside:
                depth, opened = 1, (name, head[0].start if head else t.start)
            head = []
        elif t.text in (";", "}"):
            head = []
        else:
            head.append(t)
    return spans


def closing(tokens, brace):
    depth = 0
    for t in tokens[tokens.index(brace):]:
        depth += (t.text == "{") - (t.text == "}")
        if depth == 0:
            return t.end
    return tokens[-1].end


def script_spans(text):
    """(name, start, end) of every function of a shell script, up to its }, or of Python, by its indentation."""
    for m in re.finditer(r"^([ \t]*)(?:(?:def|class)[ \t]+(\w+)|([\w-]+)\(\)[ \t]*\{)[^\n]*", text, re.M):
        if m[3] and m.group().rstrip().endswith("}"):
            yield m[3], m.start(), m.end()
            continue
        # The line with the ) of a long signature does not end a Python function.
        end = rf"^[ \t]{{0,{len(m[1])}}}(?=[^\s#)])" if m[2] else rf"^{m[1]}\}}"
        last = re.compile(end, re.M).search(text, m.end())
        yield m[2] or m[3], m.start(), last.end() if last else len(text)


@functools.lru_cache(maxsize=None)
def source(text, is_c):
    """(tokens, spans) of one file."""
    tokens = tokens_of(text, is_c)
    return tokens, c_spans(text, tokens) if is_c else list(script_spans(text))


# ---- one edit -----------------------------------------------------------------------------------------------------


def matches(tokens, wanted):
    words, n = [t.text for t in tokens], len(wanted)
    return [i for i in range(len(words) - n + 1) if words[i] == wanted[0] and words[i:i + n] == wanted]


def find(edit, text, path):
    """The tokens of the file that the old lines of an edit match, and for each the old line it belongs to."""
    is_c = bool(C_FILE.search(path))
    old = [line for mark, line in edit.lines if mark != "+"]
    joined = "\n".join(old)
    wanted = tokens_of(joined, is_c)
    if not wanted:
        raise Error(f"{edit.at}: the edit has no old line (- or =) with code in it")
    tokens, spans = source(text, is_c)
    areas = [(0, len(text))]
    if edit.function:
        areas = [(start, end) for name, start, end in spans if name == edit.function]
        if not areas:
            raise Error(f"{edit.at}: {path} has no function {edit.function}")
    found = {}
    for start, end in areas:
        inside = [t for t in tokens if start <= t.start and t.end <= end]
        for i in matches(inside, [w.text for w in wanted]):
            found[inside[i].start] = inside[i:i + len(wanted)]
    if len(found) != 1:
        where = f"{path}, {edit.function}" if edit.function else path
        raise Error(f"{edit.at}: '{old[0].strip()}' occurs {len(found)} times in {where}, not once")
    return next(iter(found.values())), [joined.count("\n", 0, w.start) for w in wanted]


def line_start(text, at):
    return text.rfind("\n", 0, at) + 1


def indent_of(line):
    return line[:len(line) - len(line.lstrip())]


def indented(lines, base, indent):
    """The new lines, indented as the code is: by `indent` where the record has `base`."""
    for line in lines:
        own = indent_of(line)
        kept = indent + own[len(base):] if own.startswith(base) else indent[:max(0, len(indent) - len(base) + len(own))]
        yield (kept + line.strip()) if line.strip() else ""


def change(text, is_c, removed, before, new):
    """(start, end, text) that replaces the tokens `removed`, or comes after `before` if no token is removed."""
    if not removed and before:
        end = REST_OF_LINE[is_c].match(text, before.end)
        at = end.end() if end else before.end
        return at, at, "\n" + "\n".join(new)
    start, end = removed[0].start, removed[-1].end
    begin = line_start(text, start)
    if text[begin:start].strip():  # other code of this line is kept
        return start, end, "\n".join(new).lstrip()
    if new:
        return begin, end, "\n".join(new)
    rest = REST_OF_LINE[is_c].match(text, end)
    return (begin, min(rest.end() + 1, len(text)), "") if rest else (start, end, "")


def changes(edit, text, path):
    """The replacements in `text` that one edit makes."""
    is_c = bool(C_FILE.search(path))
    found, line_of = find(edit, text, path)
    begin = line_start(text, found[0].start)
    base = indent_of(next(line for mark, line in edit.lines if mark != "+"))
    indent = indent_of(text[begin:found[0].end])
    out, number, before, removed, new = [], 0, None, [], []
    for mark, line in edit.lines + [("=", None)]:
        if mark == "+":
            new.append(line)
            continue
        of_line = [t for t, n in zip(found, line_of) if n == number]
        number += 1
        if mark == "-":
            removed += of_line
            continue
        if new or removed:
            put = list(indented(new, base, indent))
            if removed or before:
                out.append(change(text, is_c, removed, before, put))
            else:
                at = line_start(text, of_line[0].start)
                out.append((at, at, "\n".join(put) + "\n"))
            removed, new = [], []
        before = of_line[-1] if of_line else before
    return out


# ---- a tree -------------------------------------------------------------------------------------------------------


def tree_files():
    """The files of the working tree that git tracks or does not ignore. In a copy of the tree without git: all files
    outside of build/ and runs/."""
    ran = subprocess.run(["git", "ls-files", "-z", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True)
    if ran.returncode == 0:
        names = ran.stdout.split("\0")
    else:
        names = [os.path.relpath(os.path.join(folder, f), ROOT) for folder, _, files in os.walk(ROOT) for f in files]
        names = [n for n in names if not n.startswith(("build/", "runs/", "."))]
    return [n for n in names if n and os.path.isfile(os.path.join(ROOT, n))]


def in_order(some, of):
    """Whether the words of `some` occur in `of` in their order."""
    rest = iter(of)
    return all(word in rest for word in some)


class Tree:
    """The sources that records are applied to."""

    def __init__(self, folder=ROOT, files=None):
        self.folder, self.texts, self.by_name = folder, {}, collections.defaultdict(list)
        for f in files or tree_files():
            self.by_name[os.path.basename(f)].append(f)

    def path(self, edit):
        """The file of an edit; of several with its name, the one that has the old lines."""
        *folders, name = edit.file.split("/")
        named = [f for f in self.by_name[name] if in_order(folders, f.split("/")[:-1])]
        found = [f for f in named if self.has(f, edit)] if len(named) > 1 else named
        if len(found) != 1:
            counts = f"{len(named)} files, {len(found)} of them with the old lines; need exactly one"
            raise Error(f"{edit.at}: {edit.file} names {counts}")
        return found[0]

    def has(self, path, edit):
        try:
            return bool(find(edit, self.text(path), path))
        except Error:
            return False

    def text(self, path):
        if path not in self.texts:
            with open(os.path.join(self.folder, path), encoding="utf-8", newline="") as f:
                self.texts[path] = f.read()
        return self.texts[path]

    def files(self, record):
        return sorted({self.path(e) for e in record.edits})

    def applied(self, record):
        """{path: text} of the files that a record changes."""
        made = collections.defaultdict(list)
        for e in record.edits:
            path = self.path(e)
            made[path] += changes(e, self.text(path), path)
        out = {}
        for path, parts in made.items():
            text = self.text(path)
            for start, end, new in sorted(parts, reverse=True):
                text = text[:start] + new + text[end:]
            if text == self.text(path):
                raise Error(f"{record.at}: {record.name} changes nothing in {path}")
            out[path] = text
        return out
