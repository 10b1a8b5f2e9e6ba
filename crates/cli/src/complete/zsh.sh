#compdef vshmem
# Completes the command vshmem in zsh.
_vshmem() {
    local -a found
    found=("${(@f)$(_VSHMEM_COMPLETE=zsh _CLAP_COMPLETE_INDEX=$((CURRENT - 1)) vshmem -- "${(@Q)words[1,CURRENT]}" 2>/dev/null)}")
    # Names of files are zsh's own business.
    if [[ ${found[1]-} == / ]]; then
        _files
    elif [[ -n ${found[1]-} ]]; then
        _describe -V vshmem found
    fi
}
# When it is needed for the first time, zsh loads this as the function itself.
if [[ ${funcstack[1]-} == _vshmem ]]; then
    _vshmem "$@"
else
    compdef _vshmem vshmem
fi
