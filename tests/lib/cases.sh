# shellcheck shell=sh
# cases_of DIRECTORY FIRST...: the names of a suite's cases, one a line: those first, in that order, then the
# others by name.
cases_of() {
    (
        cd "$1" || exit
        shift
        printf '%s\n' "$@"
        for file in *.sh; do
            case " $* " in
            *" ${file%.sh} "*) ;;
            *) echo "${file%.sh}" ;;
            esac
        done
    )
}
