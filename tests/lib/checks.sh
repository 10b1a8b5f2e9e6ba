# shellcheck shell=dash
# shellcheck disable=SC2154 # who sources it sets work and patience
# Checks of test cases: each says how it went, and the case goes on. Sourced by the libraries of the suites
# machines, xen and programs, which set `work`, a directory for what comes up on the way, and `patience`, how
# many seconds `eventually` waits.

passed() {
    echo "ok      $1"
    echo "$1" >>"$work/passed"
}

failed() { # failed WHAT WHY...
    echo "$1" >>"$work/failed"
    echo "FAILED  $1"
    shift
    printf '        %s\n' "$@"
}

# unsteady CHECK...: one that fails by chance, as tests/unsteady.txt says: a failure is told, and is none
unsteady() {
    (
        # shellcheck disable=SC2317 # the check calls it
        failed() {
            echo "unsteady: $1"
            shift
            printf '        %s\n' "$@"
        }
        "$@"
    )
}

# equal WHAT EXPECTED GOT
equal() {
    if [ "$2" = "$3" ]; then
        passed "$1"
    else
        failed "$1" "expected: $2" "got:      $3"
    fi
}

# contains WHAT PART TEXT
contains() {
    case $3 in
    *"$2"*) passed "$1" ;;
    *) failed "$1" "expected in it: $2" "got: $3" ;;
    esac
}

# holds WHAT COMMAND...: the command, mostly a comparison, succeeds
holds() {
    local what="$1"
    shift
    if "$@"; then
        passed "$what"
    else
        failed "$what" "not true: $*"
    fi
}

# code WHAT EXPECTED COMMAND...: the exit code of a command; what it said is left in $work/out
code() {
    local what="$1" expected="$2" got=0
    shift 2
    "$@" >"$work/out" 2>&1 || got=$?
    if [ "$got" = "$expected" ]; then
        passed "$what"
    else
        failed "$what" "exit code $got, not $expected" "$(tail -n 5 "$work/out")"
    fi
}

# eventually WHAT COMMAND...: the command succeeds within WITHIN seconds, by default $patience
eventually() {
    local what="$1" end
    shift
    end=$(($(date +%s) + ${WITHIN:-$patience} * ${slow:-1}))
    until "$@" >"$work/out" 2>&1; do
        if [ "$(date +%s)" -gt "$end" ]; then
            failed "$what" "$* does not succeed" "$(tail -n 50 "$work/out")"
            return
        fi
        sleep "${between:-0.1}"
    done
    passed "$what"
}

# How many reserved pages are free.
free_pages() { sed -n 's/^HugePages_Free: *//p' /proc/meminfo; }
