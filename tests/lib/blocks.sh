# shellcheck shell=sh
# The blocks of README and the guides, taken from the pages themselves, so that what runs is what people read.
# Sourced by tests. scripts/blocks.py, which lint calls, finds by these calls which sections are run; all
# others say why they are not, in a comment above the block: <!-- not run: REASON -->.

# blocks_of PAGE SECTION DIRECTORY: the section's blocks, in their order, as the files 1.sh, 2.toml, 3.text,
# ...; those that say why they are not run are left out
blocks_of() {
    mkdir -p "$3"
    awk -v section="$2" -v directory="$3" '
        /^```/ && open { open = 0; close(file); skipped = 0; next }
        /^```/ {
            open = 1
            language = substr($0, 4)
            file = here && !skipped ? directory "/" ++count "." (language == "" ? "text" : language) : ""
            if (file != "") printf "" >file
            next
        }
        open { if (file != "") print >file; next }
        /^<!-- not run: / { skipped = 1; next }
        !/^(<!--|$)/ { skipped = 0 }
        /^#/ { here = $0; sub(/^#+ /, "", here); here = here == section }
        END {
            if (count) exit
            print "there are no blocks in the section " section >"/dev/stderr"
            exit 1
        }' "$1"
}

# typed LINE: what a user types there, without what is said beside it
typed() { printf '%s\n' "${1%%  *#*}"; }

# prints LINE: what the page says that it prints, if it does
prints() {
    case $1 in
    *"# prints: "*) printf '%s\n' "${1##*# prints: }" ;;
    *) return 1 ;;
    esac
}
