#!/bin/sh
# Builds the documentation as a web site, in target/site: README and what it refers to, the man pages, and the
# notes for developers. A link that leads nowhere is an error. MkDocs comes from PyPI.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
target=${CARGO_TARGET_DIR:-$root/target}
tools=$target/site-tools
text=$target/site-text
MKDOCS=mkdocs==1.6.1

if ! grep -qsx "$MKDOCS" "$tools/is"; then
    python3 -m venv "$tools"
    "$tools/bin/pip" install --quiet --disable-pip-version-check "$MKDOCS"
    echo "$MKDOCS" >"$tools/is"
fi

rm -rf "$text"
mkdir -p "$text"
git ls-files -z --cached --others --exclude-standard -- '*.md' 'docs/*.svg' 'docs/schemas/*.json' \
    'docs/results/*.txt' 'LICENSE-*' kmod/LICENSE-GPL-2.0 include/vshmem.h |
    xargs -0 cp --parents -t "$text"
# Links to man pages lead to what is made of them here.
find "$text" -name '*.md' -exec sed -i 's#(\([^) ]*\.[1-8]\))#(\1.md)#g' {} +
mkdir -p "$text/docs/man"
pages=$target/site-pages
rm -rf "$pages"
mkdir -p "$pages"
if [ -n "${VSHMEM_BIN:-}" ]; then
    "$VSHMEM_BIN" manual "$pages"
else
    scripts/cargo.sh --exec run --quiet --package vshmem-cli -- manual "$pages"
fi
for page in docs/man/*.[1-8] "$pages"/*.1; do
    name=${page##*/}
    {
        echo "# ${name%.*}(${name##*.})"
        echo
        mandoc -T html -O fragment "$page"
    } >"$text/docs/man/$name.md"
done
entries=$(cd "$pages" && for page in *.1; do echo "          - ${page%.1}(1): docs/man/$page.md"; done)
cat >"$target/mkdocs.yml" <<YAML
site_name: Vshmem
docs_dir: $text
site_dir: $target/site
theme:
  name: mkdocs
  color_mode: auto
validation:
  links:
    unrecognized_links: ignore
nav:
  - Vshmem: README.md
  - Guides:
      - Machines you already have: docs/guide-existing-machines.md
      - A cluster as a file: docs/guide-cluster-file.md
      - Start fast: docs/guide-start-fast.md
      - Cloud images: docs/guide-images.md
      - MPI: docs/guide-mpi.md
      - Performance: docs/performance.md
      - The papers' tables and figures: docs/papers.md
      - What costs speed: docs/doctor.md
      - Near their memory: docs/balance.md
      - Checks of vshmem doctor: docs/doctor-checks.md
      - Xen domains: docs/xen.md
      - What machines see of the host: docs/sandbox.md
      - JSON: docs/json.md
      - Users and groups: docs/users.md
      - The driver: kmod/README.md
      - Python: bindings/python/README.md
      - Rust: bindings/rust/README.md
      - Other languages: docs/ffi.md
      - Security: SECURITY.md
      - Specification: SPECIFICATION.md
      - The lab: lab/README.md
      - Changes: CHANGELOG.md
  - Man pages:
      - vshmem(1): docs/man/vshmem.1.md
      - Commands:
$entries
      - libvshmem(7): docs/man/libvshmem.7.md
      - vshmem(3): docs/man/vshmem.3.md
      - vshmem(4): docs/man/vshmem.4.md
  - For developers:
      - Design: DESIGN.md
      - Design by subject:
          - Words: docs/design/glossary.md
          - Operations: docs/design/operations.md
          - Death: docs/design/death.md
          - Waiting across machines: docs/design/waiting.md
          - A hostile member: docs/design/hostile-member.md
          - Memory: docs/design/memory.md
          - Pools that come and go: docs/design/pools.md
          - Machines: docs/design/machines.md
          - Ranks of MPI jobs: docs/design/mpi-ranks.md
          - What costs speed: docs/design/speed.md
          - Rejected alternatives: docs/design/rejected.md
      - Layout of a pool: docs/layout.md
      - Protocol of the back end: docs/protocol.md
      - Ports: docs/porting.md
      - For UCX's maintainers: docs/mpi-ucx.md
      - Contributing: CONTRIBUTING.md
      - Tests: tests/README.md
      - Kernels of machines: images/README.md
YAML
"$tools/bin/mkdocs" build --quiet --strict --clean --config-file "$target/mkdocs.yml"
echo "the site is in ${target#"$root"/}/site"
