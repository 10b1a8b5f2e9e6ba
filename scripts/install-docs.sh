#!/bin/sh
# Installs or removes the man pages, the shell completions and what there is to read, in MANDIR, DATADIR
# (zsh's in ZSHDIR) and DOCDIR.
#
#   scripts/install-docs.sh install VSHMEM     the built command, which has pages and completions
#   scripts/install-docs.sh uninstall
set -eu

cd "$(dirname "$0")/.."

man_pages() { # those that are written by hand; of its subcommands the command itself has some
    find docs -name '*.[1-8]' | sort
}

texts() { # README refers to these by their place
    echo README.md
    echo DESIGN.md
    echo SECURITY.md
    echo SPECIFICATION.md
    echo packaging/grafana/vshmem.json
    find docs -name '*.md' -o -name '*.json' | sort
}

completion_file() { # completion_file SHELL: where that shell looks for it
    case $1 in
    bash) echo "$DATADIR/bash-completion/completions/vshmem" ;;
    zsh) echo "$ZSHDIR/_vshmem" ;;
    fish) echo "$DATADIR/fish/vendor_completions.d/vshmem.fish" ;;
    esac
}

install_all() {
    pages=$(mktemp -d)
    trap 'rm -rf "$pages"' EXIT
    "$1" manual "$pages"
    { man_pages && find "$pages" -name '*.1'; } | while read -r page; do
        install -D -m 644 "$page" "$MANDIR/man${page##*.}/${page##*/}"
    done
    texts | while read -r text; do
        install -D -m 644 "$text" "$DOCDIR/$text"
    done
    for shell in bash zsh fish; do
        file=$(completion_file "$shell")
        install -d "${file%/*}"
        "$1" completions "$shell" >"$file"
        chmod 644 "$file"
    done
}

uninstall_all() {
    man_pages | while read -r page; do
        rm -f "$MANDIR/man${page##*.}/${page##*/}"
    done
    rm -f "$MANDIR"/man1/vshmem-*.1
    texts | while read -r text; do
        rm -f "$DOCDIR/$text"
    done
    for shell in bash zsh fish; do
        rm -f "$(completion_file "$shell")"
    done
}

case $1 in
install) install_all "$2" ;;
uninstall) uninstall_all ;;
*)
    echo "install-docs.sh: install or uninstall, not $1" >&2
    exit 2
    ;;
esac
