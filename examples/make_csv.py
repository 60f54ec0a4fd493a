#!/usr/bin/env python3
"""Makes debian-packages.csv, the texts of the demo, from this machine's package index.

    apt-get update
    apt-cache dumpavail | python3 examples/make_csv.py > examples/debian-packages.csv

Columns: id (from 1, in order of name), name, section, summary (the one-line description). The same index always gives the
same file. Only packages of Debian's main archive are taken, so every line belongs to free software; see ATTRIBUTION.md.

What a person would search for goes in: programs, games, editors, servers. Development files, documentation, debug symbols,
language packs and the like would only crowd the results with near copies of their parents, and the thousands of small
modules of the language sections are thinned out to a fixed number each. Of every source package one binary package is taken:
a compiler for thirty targets or a program in forty languages would otherwise be thirty or forty rows that say the same.
"""

import argparse
import csv
import hashlib
import re
import sys

# Sections with parts of other packages.
EXCLUDED_SECTIONS = {"debug", "doc", "introspection", "kernel", "libdevel", "libs", "localization", "metapackages", "oldlibs", "tasks"}

# Sections with thousands of modules: limit of packages per section.
THINNED_SECTIONS = {
    "cli-mono": 40, "devel": 900, "fonts": 120, "gnu-r": 120, "gnustep": 30, "golang": 120, "haskell": 120, "httpd": 100, "java": 120,
    "javascript": 120, "lisp": 120, "ocaml": 60, "otherosfs": 60, "perl": 160, "php": 100, "python": 260, "ruby": 120, "rust": 80, "tex": 80,
}

EXCLUDED_NAMES = re.compile(
    r"^(lib|task-|education-|linux-|firmware-|xfonts-|hunspell-|aspell-|hyphen-|mythes-|wine-|gcc-\d|g\+\+-\d|fpc-|lazarus-|llvm-|clang-)"
    r"|-(dbg|dbgsym|dev|doc|docs|data|common|examples|headers|base|core|bin|l10n.*|i18n|locales?|lang-.*|source|src|plugins?|static|all|tests?)$"
    r"|-(l10n|i18n|help|locale|lang)-"
)

EXCLUDED_SUMMARIES = re.compile(
    r"transitional|dummy package|metapackage|meta-package|meta package|debug(ging)? symbols|development (files|headers)"
    r"|\((common|data|shared|architecture|documentation|examples?|headers?)\b[^)]*\)|^(data|common) files|documentation for|translation",
    re.IGNORECASE,
)

# Well-known programs for the demo's searches; included regardless of the rules above.
WANTED = {
    "audacity", "blender", "chromium", "curl", "darktable", "emacs", "ffmpeg", "firefox-esr", "gimp", "git", "gnucash", "htop", "imagemagick",
    "inkscape", "krita", "libreoffice", "mariadb-server", "mutt", "nginx", "nmap", "openssh-server", "postgresql", "qgis", "redis-server",
    "rsync", "scribus", "shotwell", "sqlite3", "stellarium", "supertux", "thunderbird", "tmux", "vim", "vlc", "wireshark",
}


def packages(lines):
    """Yields one dict of single-line fields for every paragraph of a package index."""
    fields = {}
    for line in lines:
        line = line.rstrip("\n")
        if not line:
            if fields:
                yield fields
            fields = {}
        elif line[0] not in " \t":
            key, _, value = line.partition(":")
            fields[key] = value.strip()
    if fields:
        yield fields


def rank(name):
    """An order that has nothing to do with the alphabet and is the same everywhere."""
    return hashlib.sha256(name.encode()).hexdigest()


def source(package):
    """Returns the name of the source package: the field is left out where it equals the package's own, and may carry a version."""
    return package.get("Source", package["Package"]).split(" ")[0]


def is_main(package):
    """Tells whether a package comes from the archive's main component: others write theirs before the section."""
    return package.get("Filename", "").startswith("pool/") and "/" not in package.get("Section", "/")


def fits(package):
    """Tells whether a package is a thing of its own with a description worth reading."""
    summary = package["Description"]
    return (
        package["Section"] not in EXCLUDED_SECTIONS
        and not EXCLUDED_NAMES.search(package["Package"])
        and not EXCLUDED_SUMMARIES.search(summary)
        and 12 <= len(summary) <= 120
    )


def choose(found, count):
    """Returns at most count packages in order of name, no two with the same description and, but for WANTED, the same source."""
    by_name = {}
    for package in found:
        if is_main(package) and package.get("Description"):
            by_name.setdefault(package["Package"], package)

    chosen, summaries, sources, per_section = {}, set(), set(), {}

    def take(package):
        chosen[package["Package"]] = package
        summaries.add(package["Description"].lower())
        sources.add(source(package))
        per_section[package["Section"]] = per_section.get(package["Section"], 0) + 1

    for name in sorted(WANTED & by_name.keys()):
        take(by_name[name])
    # Sources in random order; within one, the package with its name first.
    for package in sorted(filter(fits, by_name.values()), key=lambda p: (rank(source(p)), p["Package"] != source(p), p["Package"])):
        full = per_section.get(package["Section"], 0) >= THINNED_SECTIONS.get(package["Section"], sys.maxsize)
        if len(chosen) < count and not full and source(package) not in sources and package["Description"].lower() not in summaries:
            take(package)
    return [chosen[name] for name in sorted(chosen)]


def main():
    """Reads an index from standard input and writes the CSV to standard output."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=8000, help="rows at most (default: %(default)s)")
    args = parser.parse_args()

    sys.stdin.reconfigure(encoding="utf-8")
    sys.stdout.reconfigure(encoding="utf-8", newline="")
    rows = choose(packages(sys.stdin), args.count)
    if len(rows) < args.count:
        print(f"make_csv.py: only {len(rows)} of {args.count} packages; is the package index complete (apt-get update)?", file=sys.stderr)
        return 1
    out = csv.writer(sys.stdout, lineterminator="\n")
    out.writerow(["id", "name", "section", "summary"])
    for number, package in enumerate(rows, 1):
        out.writerow([number, package["Package"], package["Section"], package["Description"]])
    return 0


if __name__ == "__main__":
    sys.exit(main())
