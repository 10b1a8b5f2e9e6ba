# shellcheck shell=sh
# Clean systems of Debian or Ubuntu, to install into and to look at as a new user does. Made by mmdebstrap,
# once, and kept in the cache directory ($VSHMEM_CACHE, by default ~/.cache/vshmem).
PATH=$PATH:/usr/sbin:/sbin
UBUNTU=archive.ubuntu.com/ubuntu

# as_root [OPTION...] -- COMMAND...: in name spaces of its own, --net too if that is said. Who is not root is
# root of one with the users of /etc/subuid.
as_root() {
    own=
    [ "$(id -u)" -eq 0 ] || own="--map-root-user --map-auto"
    # shellcheck disable=SC2086 # words, or none
    unshare $own --mount --pid --fork --kill-child --ipc --uts "$@"
}

mirror() { # mirror SUITE: for Debian's that of apt here, if it has Debian
    # Debian 12 has no keys of Ubuntu's; that the files are Ubuntu's is told by TLS.
    case $1 in noble) echo "deb [trusted=yes] https://$UBUNTU noble main universe" && return ;; esac
    found=$(apt-get indextargets --format '$(REPO_URI)' 'Origin: Debian' 'Label: Debian' 2>/dev/null |
        sort -u | head -n 1)
    echo "${found:-http://deb.debian.org/debian}"
}

system() { # system SUITE [PACKAGES]: prints the path of an archive of that system
    cache=${VSHMEM_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/vshmem}/packages
    archive=$cache/$1-$(dpkg --print-architecture)-$(echo "${2:-}" | sha256sum | cut -c1-12).tar.zst
    if [ ! -e "$archive" ]; then
        mkdir -p "$cache"
        rm -f "$archive.$$"
        then=true
        # Ubuntu itself has its keys, and no certificates yet.
        [ "$1" != noble ] || then="printf 'deb http://$UBUNTU %s main universe\\n' \
            noble noble-updates noble-security >\"\$1/etc/apt/sources.list\""
        echo "A system of $1 is made, once" >&2
        mmdebstrap --quiet --variant=minbase --include="apt${2:+,$2}" --customize-hook="$then" --format=tar \
            "$1" - "$(mirror "$1")" 2>"$archive.$$.log" | zstd -q -3 >"$archive.$$" || true
        # The pipe hides how mmdebstrap ended.
        zstd -qdc "$archive.$$" | tar -t >/dev/null 2>&1 && [ "$(stat -c %s "$archive.$$")" -gt 1000000 ] ||
            {
            cat "$archive.$$.log" >&2
            rm -f "$archive.$$" "$archive.$$.log"
            return 1
        }
        mv "$archive.$$" "$archive"
        rm -f "$archive.$$.log"
    fi
    echo "$archive"
}
