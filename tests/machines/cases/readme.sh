# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # patterns have backquotes; lib.sh sets it
# README's section "Machines", line by line as it is printed there, but for the pool's name.
cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}r
readme=$MACHINES_ROOT/README.md
pool=readme-$cluster
mkdir "$work/of-readme" && cd "$work/of-readme" || exit 1
sed -n '/^```c$/,/^```$/p' "$readme" | grep -v '^```' >hello.c
cc hello.c -o hello && cp /bin/true a.out || exit 1

sed -n '/^## Machines$/,/^## /p' "$readme" | sed -n '/^```sh$/,/^```$/p' | grep -v '^```' |
    sed "s/\bwork\b/$pool/g" >lines
equal "README has lines for machines" yes "$([ "$(wc -l <lines)" -ge 10 ] && echo yes)"
while read -r line <&3; do
    command=${line%%  *#*}
    case $command in
    "vshmem shell"*) contains "$command" "code 0" \
        "$(on_terminal 'send:exit\n' -- sh -c "exec '$VSHMEM_BIN' ${command#vshmem}")" && continue ;;
    esac
    code "$command" 0 sh -c "exec '$VSHMEM_BIN' ${command#vshmem}"
    case $line in *"# prints: "*) equal "which prints what README says" "${line##*# prints: }" \
        "$(cat "$work/out")" ;; esac
done 3<lines
"$VSHMEM_BIN" pool rm --force "$pool"
nothing_left "nothing is left of what README shows"
cd "$work" || exit 1
export VSHMEM_CLUSTER=$cluster
