#!/bin/sh
# lint.sh FILE.changes: lintian finds no error and no warning in the packages.
set -eu

# lintian warns of root, which a container's user is.
said=$(lintian --allow-root --fail-on error,warning "$1" 2>&1) || {
    echo "$said"
    exit 1
}
