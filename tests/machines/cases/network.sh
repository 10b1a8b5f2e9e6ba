# shellcheck shell=bash
# shellcheck disable=SC2016,SC2154 # machines expand what is quoted; lib.sh sets it
# Networks: machines that find each other by name, whatever they boot; one outside, by a bridge of the host;
# ssh without a port; Ansible's inventory.

# shellcheck source=tests/machines/bridge.sh
. "$MACHINES_ROOT/tests/machines/bridge.sh"
cluster=$VSHMEM_CLUSTER
vshmem down >/dev/null 2>&1
export VSHMEM_CLUSTER=${cluster}n
file=$work/network.toml
cat >"$file" <<TOML
[[machines]]
name = "plain"
memory = "256M"
[[machines]]
name = "slim"
memory = "192M"
image = "slim"
[pools.default]
size = "4M"
TOML

# What can't be is told before anything is started.
printf '[network]\nbridge = "vsh-none"\n' | cat - "$file" >"$work/none.toml"
code "a bridge that there isn't is an error" 125 vshmem up "$work/none.toml"
contains "that says what to do" "no bridge vsh-none" "$(cat "$work/out")"
nothing_left "nothing is left of that"

clean_up() { bridge_ends; }
bridge=
if bridge_begins; then
    bridge='[network]
bridge = "vshbr0"
'
    printf '%s\n' 'start 10.99.0.100' 'end 10.99.0.109' 'interface vshbr0' "lease_file $work/leases" \
        "pidfile $work/udhcpd.pid" 'option subnet 255.255.255.0' 'option router 10.99.0.1' \
        >"$work/udhcpd.conf"
    touch "$work/leases"
    if busybox udhcpd --help >/dev/null 2>&1; then
        outside busybox udhcpd -f -S "$work/udhcpd.conf" >/dev/null 2>&1 &
    else
        bridge="${bridge}address = \"10.99.0.100/24\"
"
    fi
else
    echo "        Without root and network name spaces no bridge is tried."
fi
printf '%s' "$bridge" | cat - "$file" >"$work/with.toml"
if ! there up "$work/with.toml" --share "$work" --share "$MACHINES_ROOT/tests" >"$work/up" 2>&1; then
    failed "machines with networks come up" "$(cat "$work/up")"
    exit 1
fi

# Names.
address() { vshmem exec "$1" -- getent hosts "$2" | tr -s ' ' | cut -d ' ' -f 1; }
reaches() { vshmem exec -u root "$1" -- ping -c 1 -W 20 "$2"; } # busybox's in a slim machine
knows() { vshmem exec "$1" -- grep -c " $2\$" /etc/hosts; }
equal "a machine knows another by its name" 10.77.0.2 "$(address plain slim)"
has_ping=$(vshmem exec slim -- sh -c 'test -e /bin/ping && echo yes' 2>/dev/null)
[ -z "$has_ping" ] || code "a slim machine reaches another by its name" 0 reaches slim plain
equal "a slim machine joins" 0 "$(there grow --quiet >"$work/out" 2>&1 && echo $?)"
equal "all know it" "1 1" "$(knows plain slim0) $(knows slim slim0)"
[ -z "$has_ping" ] || code "and reach it" 0 reaches slim slim0
code "it leaves" 0 vshmem shrink slim0
equal "and nobody knows it any more" "0 0" "$(knows plain slim0) $(knows slim slim0)"

# ssh.
code "a machine without an ssh server is not reached by ssh" 255 vshmem ssh -o BatchMode=yes plain true
contains "which is said, with what to do" "vshmem exec plain" "$(cat "$work/out")"
if command -v sshd >/dev/null && command -v ssh >/dev/null; then
    ssh-keygen -q -t ed25519 -N '' -f "$work/key"
    # begin_sshd KEY: an ssh server that has this host key; root, who has no password, is not locked out
    begin_sshd() {
        vshmem exec -u root plain -- sh -c "pkill -x sshd; rm -f $1 /etc/shadow &&
            mkdir -p /run/sshd /root/.ssh && echo 'root:*:19000::::::' >/etc/shadow &&
            ssh-keygen -q -t ed25519 -N '' -f $1 &&
            cp $work/key.pub /root/.ssh/authorized_keys && $(command -v sshd) -f /dev/null -h $1 \
                -o UsePAM=no -o 'Subsystem sftp internal-sftp'"
    }
    vshmem exec -u root plain -- sh -c 'rm -f /etc/ssh/ssh_host_*'
    code "an ssh server starts" 0 begin_sshd /etc/ssh/ssh_host_ed25519_key
    by_key() { vshmem ssh -o IdentityFile="$work/key" -o IdentitiesOnly=yes -o BatchMode=yes "$@"; }
    equal "ssh reaches one by the machine's channel" "plain root" \
        "$(by_key plain 'echo $(hostname) $(whoami)' 2>&1)"
    vshmem ssh --config plain >"$work/ssh_config"
    head -c 300000 /dev/urandom >"$work/sent"
    copy() { timeout $((60 * slow)) scp -q -F "$work/ssh_config" -i "$work/key" "$@"; }
    code "scp does so by a configuration" 0 copy "$work/sent" plain:/tmp/sent
    equal "and all bytes arrive" "$(sha256sum <"$work/sent")" \
        "$(vshmem exec plain -- cat /tmp/sent | sha256sum)"
    if [ -n "${MACHINES_FULL:-}" ]; then
        code "another one starts" 0 begin_sshd /root/other_key
        code "a server that does not have the machine's keys is refused" 255 by_key plain true
        contains "as a stranger" "Host key verification failed" "$(cat "$work/out")"
    fi
fi

# Ansible.
equal "an inventory has all machines" "['plain', 'slim'] vshmem running" "$(vshmem inventory --list |
    field "told['cluster_$VSHMEM_CLUSTER']['hosts'], *[told['_meta']['hostvars']['slim'][key]
        for key in ('ansible_connection', 'vshmem_state')]")"
if command -v ansible >/dev/null; then
    ansible_there() {
        (cd "$MACHINES_ROOT/examples/ansible" &&
            PATH=$(dirname "$VSHMEM_BIN"):$PATH timeout $((300 * slow)) "$@")
    }
    code "Ansible reaches a machine" 0 ansible_there ansible plain -m ping
    code "and plays a book there" 0 ansible_there ansible-playbook playbook.yaml --limit plain
    equal "which leaves what it should" "plain slim" "$(vshmem exec plain -- cat /etc/neighbours)"
fi

# Outside.
if [ -n "$bridge" ]; then
    card() {
        vshmem ps --json |
            field "*[m['uplink']['mac'] for m in told['clusters'][0]['machines'] if m['name'] == '$1']"
    }
    its_address() { # of the card, in the machine
        vshmem exec "$1" -- sh -c "for card in /sys/class/net/*; do
            ! grep -q $(card "$1") \$card/address || exec ip -4 -o addr show dev \${card##*/}
        done" | sed -n 's/.* inet \([0-9.]*\).*/\1/p'
    }
    is_outside() { case $(its_address "$1") in 10.99.0.10[0-9]) ;; *) false ;; esac; }
    eventually "a machine has an address in the bridge" is_outside plain
    eventually "a slim one, too" is_outside slim
    code "the host reaches it there" 0 outside busybox ping -c 1 -W 20 "$(its_address slim)"
    code "and it the host" 0 reaches slim 10.99.0.1
    equal "each has a tap device" 2 "$(taps)"
    kill -KILL "$(pid_of slim)"
    one_tap() { [ "$(taps)" -eq 1 ]; }
    eventually "which a machine that dies does not leave behind" one_tap
    mac=$(card slim)
    code "it comes back" 0 there repair --quiet
    equal "with the same card" "$mac 2" "$(card slim) $(taps)"
    code "and its names" 0 reaches slim plain
    sed '/^address/d; s/^bridge.*/&\naddress = "10.99.0.20\/24"/' "$work/with.toml" >"$work/other.toml"
    there up "$work/other.toml" --dry-run >"$work/out" 2>&1
    contains "other addresses take a restart" \
        "restart  slim: network outside bridge vshbr0, addresses from 10.99.0.20/24 instead of" \
        "$(cat "$work/out")"
fi
vshmem down
nothing_left "nothing is left of machines with networks"
[ -z "$bridge" ] || equal "and no tap device" 0 "$(taps)"
export VSHMEM_CLUSTER=$cluster
