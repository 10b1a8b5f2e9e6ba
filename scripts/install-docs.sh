#!/bin/sh
# Installs or removes the man pages and the shell completions.
#
#   scripts/install-docs.sh install MANDIR DATADIR VSHMEM     VSHMEM: the built command, which prints its completions
#   scripts/install-docs.sh uninstall MANDIR DATADIR
set -eu

cd "$(dirname "$0")/.."
action=$1 mandir=$2 datadir=$3

man_pages() {
    find docs -name '*.[1-8]' | sort
}

completion_file() { # completion_file SHELL: where that shell looks for it
    case $1 in
    bash) echo "$datadir/bash-completion/completions/vshmem" ;;
    zsh) echo "$datadir/zsh/site-functions/_vshmem" ;;
    fish) echo "$datadir/fish/vendor_completions.d/vshmem.fish" ;;
    esac
}

install_all() {
    man_pages | while read -r page; do
        install -D -m 644 "$page" "$mandir/man${page##*.}/${page##*/}"
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
        rm -f "$mandir/man${page##*.}/${page##*/}"
    done
    for shell in bash zsh fish; do
        rm -f "$(completion_file "$shell")"
    done
}

case $action in
install) install_all "$4" ;;
uninstall) uninstall_all ;;
*)
    echo "install-docs.sh: install or uninstall, not $action" >&2
    exit 2
    ;;
esac
