# Completes the command vshmem in bash.
_vshmem() {
    mapfile -t COMPREPLY < <(_VSHMEM_COMPLETE=bash _CLAP_COMPLETE_INDEX=$COMP_CWORD vshmem -- "${COMP_WORDS[@]::COMP_CWORD}" "$2" 2>/dev/null)
    # Names of files are bash's own business.
    if [[ ${COMPREPLY[0]-} == / ]]; then
        COMPREPLY=()
        compopt -o bashdefault -o default
    fi
}
complete -o nosort -F _vshmem vshmem
