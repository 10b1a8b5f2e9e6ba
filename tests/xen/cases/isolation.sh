# shellcheck shell=sh
# shellcheck disable=SC2016 # other shells expand what is quoted
# A guest that was not given the pool can read nothing of it, map nothing of it, and is told so.
need vm0 vm2
[ -c /dev/vshmem-xen/work ] || serve work 8M vm0,vm1
joined vm0
have work vm0
stranger=$(id_of vm2)

code "a guest that was given nothing joins nothing" 125 ask vm2 'vshmem xen join --once 2'
contains "and is told so" "Domain 0 has given no pool to this one (domain $stranger)" "$(cat /tmp/out)"
equal "a program is told so, too" "No such file or directory" \
    "$(ask vm2 "$(on_pool work "perl -e 'shmget(0x99, 4096, 01600) // print \$!'")")"
contains "and a user" "This machine was given no pool of that name" \
    "$(ask vm2 'vshmem ipcs --pool work 2>&1')"

at=/local/domain/0/data/vshmem
theirs=$at/$(id_of vm0)
code "dom0 can read the announcement" 0 xenstore-read "$theirs/work"
code "vm0 can" 0 ask vm0 "xenstore-read $theirs/work"
code "the stranger can't" 1 ask vm2 "xenstore-read $theirs/work"
for path in "$at" "$theirs"; do
    code "nor list $path" 1 ask vm2 "xenstore-ls $path"
done
code "nor write there" 1 ask vm2 "xenstore-write $theirs/other 1"

# Even if it learns all of it: the hypervisor maps nothing for it.
ticket=$(xenstore-read "$theirs/work")
size=${ticket%% *}
rest=${ticket#* }
equal "and with all that is in it the driver attaches no pool for it" "Permission denied" \
    "$(ask vm2 "steal $stranger 0 ${rest%% *} $size ${rest#* }")"
code "no device file is there" 1 ask vm2 'ls /dev/vshmem-xen/stolen'

# Page by page, past the driver: first as the guest that has the pool, to be sure that these are the pages.
list=${rest#* }
list=${list%% *}
pages=$(ask vm0 "peek 0 $list")
contains "vm0 maps the list of the pool's pages" " " "$pages"
for page in $list $pages; do
    code "vm0 maps page $page" 0 ask vm0 "peek 0 $page"
    equal "the stranger doesn't" refused "$(ask vm2 "peek 0 $page")"
done
code "programs of the others go on" 0 ask vm0 \
    "$(on_pool work "perl -e 'exit !defined shmget(0x98, 4096, 01600)'")"
