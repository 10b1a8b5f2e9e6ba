# shellcheck shell=sh
# isolated COMMAND...: in an IPC namespace of its own, so that nothing is left in the system's.
isolated() {
    if [ "$(id -u)" -eq 0 ]; then
        unshare --ipc "$@"
    else
        unshare --map-root-user --ipc "$@"
    fi
}
if ! isolated true; then
    echo "no IPC namespace can be had: run it as root, or allow user namespaces" >&2
    exit 2
fi
