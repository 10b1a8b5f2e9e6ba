# shellcheck shell=bash
# shellcheck disable=SC2154 # lib.sh sets it
# docs/guide-cluster-file.md, as it is printed there, but for the cluster's name.
cluster=$VSHMEM_CLUSTER
export VSHMEM_CLUSTER=${cluster}g
blocks_of "$MACHINES_ROOT/docs/guide-cluster-file.md" "A cluster as a file" "$work/begin"
blocks_of "$MACHINES_ROOT/docs/guide-cluster-file.md" "Where machines run" "$work/place"
blocks_of "$MACHINES_ROOT/docs/guide-cluster-file.md" "Changing a cluster that runs" "$work/change"
as_user_in of-guide
name="s/-c boss/-c $VSHMEM_CLUSTER/"

sed 's/^cpus/cpu/' "$work/begin/2.toml" >cluster.toml
screen "$work/begin/3.text"
cp "$work/begin/2.toml" cluster.toml
# The cluster is ended last.
sed '/^vshmem down/d' "$work/begin/1.sh" >"$work/up"
grep '^vshmem down' "$work/begin/1.sh" >"$work/down"
types "$work/up" "$name"

sed 's/512M/1G/; s/count = 2/count = 1/' "$work/begin/2.toml" >cluster.toml
printf '[pools.extra]\nsize = "4M"\nmachines = ["worker"]\n' >>cluster.toml
screen "$work/change/1.text"
types "$work/change/2.sh" "$name"
types "$work/down" "$name"
nothing_left "nothing is left of what the guide shows"

if [ -x "$(command -v vshmem-place)" ]; then
    ln -s "$MACHINES_ROOT/examples" examples
    screen "$work/place/2.text"
else
    echo "skip    vshmem-place was not built"
fi
cd "$work" || exit 1
export VSHMEM_CLUSTER=$cluster
