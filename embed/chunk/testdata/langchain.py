"""Writes langchain.json.gz: what langchain-text-splitters makes of 1,000 texts.

Run in this folder with that package installed: python langchain.py
"""
import gzip
import json
import random

from langchain_text_splitters import CharacterTextSplitter, RecursiveCharacterTextSplitter

random.seed(7)
WORDS = ["a", "of", "vector", "Straße", "naïve", "日本語", "文字列", "émigré", "row", "🙂", "chunk.", "why?", "yes!", "x" * 37,
         "und", "the", "\u00a0wide", "tab\tbed", "end\x1f", "line\u2028sep"]
JOINS = [" "] * 12 + ["  ", "\n", "\n\n", "\n\n\n", "\n\n\n\n", ". ", "\r\n", "", "\t", "\n \n"]


def text() -> str:
    return "".join(random.choice(WORDS) + random.choice(JOINS) for _ in range(random.randrange(0, 70)))


def main() -> None:
    cases = []
    for n in range(1000):
        size = random.choice([1, 5, 17, 40, 80, 200, 1000])
        overlap = random.choice([0, 0, size // 10, size // 2, size])
        one = {"text": text(), "size": size, "overlap": overlap}
        if n % 2:
            one["strategy"] = "character"
            one["separators"] = [random.choice(["\n\n", "\n", " ", "", ". ", "\n\n\n"])]
            splitter = CharacterTextSplitter(separator=one["separators"][0], chunk_size=size, chunk_overlap=overlap)
        else:
            one["strategy"] = "recursive"
            one["separators"] = random.choice([
                ["\n\n", "\n", " ", ""], ["\n\n", "\n", ".", "?", "!", " ", ""], ["\n\n", " "], ["\n"],
            ])
            splitter = RecursiveCharacterTextSplitter(separators=one["separators"], chunk_size=size, chunk_overlap=overlap)
        one["chunks"] = splitter.split_text(one["text"])
        cases.append(one)
    with gzip.GzipFile("langchain.json.gz", "wb", mtime=0) as f:
        f.write(json.dumps(cases, ensure_ascii=False, separators=(",", ":")).encode())


if __name__ == "__main__":
    main()
