#!/usr/bin/env bash
# docs-site.sh MKDOCS: builds README.md and the pages of docs/ into dist/site. It fails on a broken link.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
pages=dist/site-pages
rm -rf "$pages"
mkdir -p "$pages"
cp -r docs/*.md docs/*.svg docs/adr docs/screenshots "$pages"
cp README.md "$pages/index.md"
cp CHANGELOG.md "$pages/changelog.md"
# Fix links of moved pages, and links into the rest of the tree.
tree=https://github.com/embedsidecar/embedsidecar/blob/main
sed -i -E 's#\]\(docs/adr\)#](adr/0001-level-triggered-tasks.md)#g; s#\]\(docs/#](#g; s#\]\(CHANGELOG\.md#](changelog.md#g' \
  "$pages/index.md" "$pages/changelog.md"
sed -i -E "s#\]\(((bench|examples|deploy|plugins|sql|tools)[/)]|LICENSE|SECURITY)#](../\1#g" "$pages/index.md" "$pages/changelog.md"
sed -i -E "s#\]\(adr\)#](adr/0001-level-triggered-tasks.md)#g; s#\]\(\.\./README\.md#](index.md#g; s#\]\(\.\./CHANGELOG\.md#](changelog.md#g
  s#\]\(\.\./#]($tree/#g" "$pages"/*.md
NO_MKDOCS_2_WARNING=1 "$1" build --strict --config-file tools/mkdocs.yml
rm -rf "$pages"
