#!/usr/bin/env python3
"""Finds circles of imports between the files of a crate, and fails if there are any.

    scripts/circles.py            in every crate under crates/
    scripts/circles.py NAME...    in these

A file imports the one that defines what it names, in a `use` or by a path. Re-exports are followed
to the definition, and are no import by themselves: so a `mod.rs` may hand on what its children
define. Code for tests does not count. This is no compiler: it relies on how rustfmt lays code out,
and sees no methods.
"""

import re
import sys
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# What is no code, but for the paths of modules.
LITERAL = re.compile(
    r"""(\#\[path\ =\ "[^"]*"\])
    | //[^\n]* | /\*.*?\*/
    | b?r(\#*)".*?"\2 | [bc]?"(?:\\.|[^"\\])*" | b?'(?:\\[^']+|[^'\\\n])'""",
    re.DOTALL | re.VERBOSE,
)
# Up to the end of what the attribute is for.
FOR_TESTS = re.compile(r"^( *)#\[cfg\(test\)\]\n(?:.*\n)*?\1(?=\S).*[;,}] *\n", re.MULTILINE)
INLINE = re.compile(r"^(?:pub\S* )?mod \w+ \{\n(?:.*\n)*?\}", re.MULTILINE)
MODULE = re.compile(
    r"""^(?:\#\[path\ =\ "(.*)"\]\n)?(?:\#\[.*\]\s*\n)*(?:pub\S*\ )?mod\ (\w+);""",
    re.MULTILINE | re.VERBOSE,
)
DEFINED = re.compile(
    r"""^(?:pub\S*\ )?(?:(?:const|async|unsafe|extern)\s+)*
    (?:fn|struct|enum|union|trait|type|const|static(?:\ mut)?|mod|macro_rules!)\ (\w+)""",
    re.MULTILINE | re.VERBOSE,
)
USE = re.compile(r"\b(pub(?:\([\w: ]+\))? )?use ([^;]+);")
GROUP = re.compile(r"([\w:]*)\{([^{}]*)\}")
PATH = re.compile(r"(?<![\w:$])\w+(?:::\w+)+")
WORD = re.compile(r"(?<![\w.:])(?<!fn )\w+(?![\w:])")


def blank(match):
    """What stands in the place of what was dropped: the same lines."""
    return "\n" * match[0].count("\n")


class File:
    """A file of a crate, as a module: its children, what it defines, and what it names."""

    def __init__(self, path, parent=None, is_folder=True):
        self.path = path
        self.parent = parent
        text = LITERAL.sub(lambda m: m[1] or blank(m), path.read_text())
        text = FOR_TESTS.sub(blank, text)
        # A module in the file is one of its definitions.
        text = INLINE.sub(lambda m: m[0].replace("super::", "self::"), text)
        folder = path.parent if is_folder else path.with_suffix("")
        self.children = {m[2]: self.child(folder, m[1], m[2]) for m in MODULE.finditer(text)}
        text = MODULE.sub(blank, text)
        self.defined = set(DEFINED.findall(text))
        self.imported = {}  # name: path
        self.globs = []  # paths
        self.named = []  # paths, and where they are
        reexported = set()
        for use in USE.finditer(text):
            for path, name in use_paths(use[2]):
                if name == "*":
                    self.globs.append(path)
                    continue
                if path != [name]:
                    self.imported[name] = path
                if use[1]:
                    reexported.add(name)
                else:
                    self.named.append((path, text.count("\n", 0, use.start()) + 1))
        text = USE.sub(blank, text)
        for path in PATH.finditer(text):
            self.named.append((path[0].split("::"), text.count("\n", 0, path.start()) + 1))
        for word in WORD.finditer(text):
            if word[0] in reexported or self.globs and word[0] not in self.defined:
                self.named.append(([word[0]], text.count("\n", 0, word.start()) + 1))

    def child(self, folder, given, name):
        if given:
            return File((self.path.parent / given).resolve(), self)
        inside = folder / name / "mod.rs"
        return File(inside, self) if inside.exists() else File(folder / f"{name}.rs", self, False)

    def all(self):
        yield self
        for child in self.children.values():
            yield from child.all()

    def find(self, path, is_module=False, seen=()):
        """The file that a path leads to, and whether it is the module itself; None: not ours.
        A module and a function may have the same name."""
        at = self
        for i, name in enumerate(path):
            is_last = i + 1 == len(path) and not is_module
            if name == "crate":
                while at.parent:
                    at = at.parent
            elif name == "super":
                at = at.parent or at
            elif name != "self":
                found = at.lookup(name, not is_last, i == 0, seen)
                if found is None:
                    return None
                at, is_itself = found
                if not is_itself:
                    return found
        return at, True

    def lookup(self, name, is_module, is_first, seen):
        """The same for one name in this module."""
        if (self, name, is_module) in seen:
            return None
        seen = (*seen, (self, name, is_module))
        is_other = name in self.defined or name in self.imported
        if name in self.children and (is_module or not is_other):
            return self.children[name], True
        if name in self.defined:
            return self, False
        if name in self.imported:
            return self.find(self.imported[name], is_module, seen)
        for glob in self.globs:
            within = self.find(glob, True, seen)
            if within and (found := within[0].lookup(name, is_module, True, seen)):
                return found
        # A path that goes on to what no definition was seen of: a macro makes it.
        return None if is_first else (self, False)

    def imports(self):
        """The files that this one imports: for each a line, and what is named there."""
        found = {}
        for path, line in self.named:
            to = self.find(path)
            if to and to[0] is not self and not to[1]:
                found.setdefault(to[0], (line, "::".join(path)))
        return found


def use_paths(tree):
    """The paths of a `use`, and the names that they get."""
    tree = re.sub(r"\s+", " ", tree).strip().removeprefix("::")
    while group := GROUP.search(tree):
        parts = (group[1] + part.strip() for part in group[2].split(",") if part.strip())
        tree = tree.replace(group[0], ",".join(parts))
    for part in tree.split(","):
        path, _, name = part.strip().partition(" as ")
        path = path.removesuffix("::self").split("::")
        yield (path[:-1], "*") if path[-1] == "*" else (path, name or path[-1])


def circle(files):
    """A shortest circle of imports, as the files on it."""
    imports = {file: file.imports() for file in files}
    shortest = []
    for start in files:
        came_from, at_end = {}, [start]
        while at_end and start not in came_from:
            reached = {to: file for file in at_end for to in imports[file] if to not in came_from}
            came_from |= reached
            at_end = list(reached)
        if start in came_from:
            chain = [start, came_from[start]]
            while chain[-1] is not start:
                chain.append(came_from[chain[-1]])
            if not shortest or len(chain) < len(shortest):
                shortest = chain[::-1]
    return [(file, *imports[file][to], to) for file, to in pairwise(shortest)]


def main(names):
    found = sorted(file.parent for file in (ROOT / "crates").glob("**/Cargo.toml"))
    crates = [crate for crate in found if not names or crate.name in names]
    failed = False
    for crate in crates:
        roots = [crate / "src/lib.rs", crate / "src/main.rs", *crate.glob("src/bin/*.rs")]
        for root in roots:
            found = circle(list(File(root).all())) if root.exists() else []
            for file, line, what, to in found:
                failed = True
                file, to = (it.path.relative_to(ROOT) for it in (file, to))
                print(f"{file}:{line}: {what} of {to}")
    if failed:
        print("These files import each other in a circle.")
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
