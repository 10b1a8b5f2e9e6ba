//! Arguments of `vshmem mpirun`, as clap parses and explains them.

use crate::args::{ClusterArg, CommandLine, CommandOptions};
use crate::complete::values;
use clap::Args;
use std::ffi::OsString;
use std::path::PathBuf;

#[derive(Args)]
#[command(
    override_usage = "vshmem mpirun [OPTIONS] [--] <COMMAND>...",
    after_help = "\
Examples:
  vshmem mpirun -n 4 ./a.out                        four ranks in the machines of the cluster
  vshmem mpirun -n 4 --vm vm0,vm1 --label ./a.out
  vshmem mpirun --local -n 2 ./a.out                without machines, on this kernel
  vshmem mpirun -host vm0:2,vm1:2 ./a.out           two ranks in each
  vshmem mpirun -hostfile hosts -n 8 ./a.out        MPICH's or Open MPI's host file
  vshmem mpirun --mpi openmpi -n 2 python3 job.py
  vshmem mpirun --explain -n 4 ./a.out              what would be set, and why
  vshmem mpirun -host one,two --exec 'podman exec -i {}' --pool /run/pool ./a.out

Runs an unmodified MPI or OpenSHMEM program by its own MPI's launcher. Ranks in different machines talk through the pool
that the machines share, without ssh and without keys. Hosts are machines of the cluster, or with --exec whatever a
command reaches: containers, name spaces.

Ranks are given to hosts by slots, and numbered host by host. A machine has as many slots as it has processors; if there
are more ranks than processors, ranks leave their processor while they wait. A variable that you have set yourself stays
as it is. Each host of a host file may have its own pool (pool=NAME): ranks with different pools talk over the network.

Of the options of both MPIs' mpiexec, with one dash or two, these are understood as well: -np, -N, -npernode, -perhost,
-pernode, --map-by ppr:K:node, -machinefile, -x NAME[=VALUE], -genv NAME VALUE, -envlist NAME,..., -wdir, --tag-output,
--oversubscribe. --mca, -iface, --timeout, --report-bindings and some more are passed on; for others write
--mpiexec-arg=WORD, for each word of theirs. -c is the cluster's here.

When a rank, a machine or the launcher dies, the job ends."
)]
pub struct Mpirun {
    #[command(flatten)]
    pub cluster: ClusterArg,
    #[command(flatten)]
    pub how: CommandOptions,
    /// Number of ranks; by default, as many as the hosts have slots
    #[arg(short = 'n', long = "ranks", visible_alias = "np", value_name = "N")]
    pub ranks: Option<u32>,
    /// The machines, instead of all of the cluster
    #[arg(long, value_delimiter = ',', value_name = "VM,...", add = values::machines(), conflicts_with_all = ["host", "hostfile"])]
    pub vm: Vec<String>,
    /// On this kernel, in the pool that VSHMEM_POOL names, or in 'default'
    #[arg(long, conflicts_with_all = ["vm", "host", "hostfile", "exec"])]
    pub local: bool,
    /// The hosts, with their slots; also -host
    #[arg(long, short = 'H', value_name = "HOST[:SLOTS],...", conflicts_with = "hostfile")]
    pub host: Vec<String>,
    /// A file of hosts; also -hostfile
    #[arg(long, short = 'f', value_name = "FILE", add = values::files())]
    pub hostfile: Option<PathBuf>,
    /// Ranks in each host
    #[arg(long, value_name = "K")]
    pub ppn: Option<u32>,
    /// The pool of the ranks, as it is called where they run: a name, or a path with a slash
    #[arg(long, value_name = "POOL", add = values::pools())]
    pub pool: Option<String>,
    /// How a command is run in a host that is no machine; {} is its name
    #[arg(long, value_name = "COMMAND", conflicts_with = "vm")]
    pub exec: Option<String>,
    /// The MPI, if the program does not tell: mpich, openmpi, or the path of an mpiexec
    #[arg(long, value_name = "MPI", add = values::files())]
    pub mpi: Option<OsString>,
    /// Begin each line of output with its rank
    #[arg(long, short = 'l')]
    pub label: bool,
    /// How ranks are bound to processors: core, socket, none, ... (mpiexec's --bind-to); hosts that share a
    /// kernel have cores of their own then
    #[arg(long, value_name = "OBJECT")]
    pub bind_to: Option<String>,
    /// A further argument of mpiexec; may be repeated
    #[arg(long, value_name = "ARGUMENT", allow_hyphen_values = true)]
    pub mpiexec_arg: Vec<OsString>,
    /// Fail if ranks that share a pool talk over the network or past UCX, and say what they talk by
    #[arg(long)]
    pub verify_transport: bool,
    /// Once needed for versions that were not tested
    #[arg(long, hide = true)]
    force: bool,
    /// Run nothing; show what would be run and set, and why
    #[arg(long)]
    pub explain: bool,
    /// Print JSON, with --explain
    #[arg(long, requires = "explain")]
    pub json: bool,
    #[command(flatten)]
    pub line: CommandLine,
}
