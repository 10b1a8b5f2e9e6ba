//! Arguments of commands, as clap parses and explains them.

use crate::complete::values;
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Parser, Subcommand, ValueEnum};
use std::ffi::OsString;
use std::path::PathBuf;
use vshmem_cluster::description::resolve::AUTO;
use vshmem_hypervisor::launcher::table::launchers;
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_inspect::limits::Limit;
use vshmem_placement::pages::{Pages, PoolNodes};
use vshmem_placement::rules::Policy;

pub const EXIT_CODES: &str = "\
Exit codes:
  0        success
  1        what was asked for does not exist, or could not be removed
  2        a mistake in the command line
  125      Vshmem itself failed: no machine, no hypervisor, no library, ...
  126,127  the command could not be run; there is no such command
  128+N    the command was ended by signal N
  others   exec, run and mpirun pass on the command's own";

/// The cluster that a command is about.
#[derive(Args, Clone)]
pub struct ClusterArg {
    /// The cluster, if there are several
    #[arg(
        long,
        short,
        default_value = "default",
        env = "VSHMEM_CLUSTER",
        value_name = "NAME",
        add = values::clusters()
    )]
    pub cluster: String,
}

#[derive(Args)]
#[command(after_help = format!("\
Examples:
  vshmem up
  vshmem up -n 4 --cpus 2 --memory 1G --pool-size 1G
  vshmem up --share ~/data --share ~/results:rw
  vshmem up -n 2 --cpus 4 --placement numa-first --strict cores
  vshmem up --cluster other
  vshmem up cluster.toml
  vshmem up cluster.toml --dry-run
  vshmem up --schema > cluster.schema.json

A file describes machines that differ, and further pools and the machines that get them; see
docs/guide-cluster-file.md. Options come on top of what it says. In a cluster that runs,
only what differs is changed.

The machines see this system's programs and libraries (/usr, /bin, /lib, /opt, and of /etc what everybody can read), the
current directory, the directory of libvshmem.so, and what --share names; no other files of this host. A current
directory that is hidden, or that is or contains a home directory, is only shared if --share names it. Everything is
read-only except for what is shared with rw; what machines write elsewhere goes to a private layer in their memory.
They reach each other as vm0, vm1, ... (10.77.0.1, 10.77.0.2, ...).
{}", launchers().map(|launcher| launcher.facts().needs).join("\n")))]
pub struct Up {
    /// A file that describes the cluster (TOML)
    #[arg(conflicts_with_all = ["machines", "cpus", "memory"], add = values::files())]
    pub file: Option<PathBuf>,
    /// Number of machines [default: 2]
    #[arg(short = 'n', long, value_name = "N")]
    pub machines: Option<u32>,
    /// The cluster's name [default: the file's, or default]
    #[arg(long = "cluster", short, env = "VSHMEM_CLUSTER", alias = "name", value_name = "NAME")]
    pub cluster: Option<String>,
    /// Virtual cores of each machine [default: 1]
    #[arg(long, value_name = "N")]
    pub cpus: Option<u32>,
    /// Memory of each machine [default: 512M]
    #[arg(long, value_parser = crate::size::parse, value_name = "SIZE")]
    pub memory: Option<u64>,
    /// Size of the pool that they share, a power of two; by default 1G, if the hypervisor has room for it
    #[arg(long, value_parser = crate::size::parse, value_name = "SIZE")]
    pub pool_size: Option<u64>,
    /// The transport by which they get the pool; by default, the hypervisor's first one
    #[arg(long, value_name = "NAME", value_parser = transports())]
    pub transport: Option<String>,
    /// An existing pool of this host that they get as well: a name, or a path with a slash; may be repeated
    #[arg(long, value_name = "POOL", add = values::pools())]
    pub pool: Vec<String>,
    /// Back all of these pools with memory now and for good: machines can't run out of it, whatever else the
    /// host runs
    #[arg(long)]
    pub reserve: bool,
    /// Start the machines though this host may not have all of their memory
    #[arg(long)]
    pub overcommit: bool,
    /// Where virtual cores may run [default: the file's; none is asked for without a file]
    #[arg(long, value_name = "POLICY", value_parser = policies())]
    pub placement: Option<Policy>,
    /// What must be had as it is asked for: otherwise the next best is taken, and named
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub strict: Vec<Strict>,
    /// Take the machines' memory from all nodes by turns
    #[arg(long)]
    pub interleave: bool,
    /// Let virtual cores share cores of this host as SMT siblings
    #[arg(long)]
    pub smt: bool,
    /// Cores of each memory node that no pinned virtual core gets
    #[arg(long, value_name = "CORES")]
    pub reserve_cores: Option<u32>,
    /// The pages of the machines' memory [default: the file's, or what the kernel gives]
    #[arg(long, value_name = "PAGES", value_parser = pages())]
    pub pages: Option<Pages>,
    /// The pages of pools that are made; others than small ones are taken at once, and for good
    #[arg(long, value_name = "PAGES", value_parser = pages())]
    pub pool_pages: Option<Pages>,
    /// The memory node of this host that the memory of the pool comes from that they share, or 'interleave'
    #[arg(long, value_name = "NODE")]
    pub pool_node: Option<PoolNodes>,
    /// Take all memory of machines and pools before the machines boot
    #[arg(long)]
    pub prealloc: bool,
    /// How many threads do so [default: one for each core near to the memory, up to 16]
    #[arg(long, value_name = "N")]
    pub prealloc_threads: Option<u32>,
    /// A directory that the machines see, read-only (ro, the default) or writable (rw); may be repeated
    #[arg(long, value_name = "DIR[:ro|rw]", add = values::directories())]
    pub share: Vec<String>,
    /// Number of pools that each machine can be granted later [default: 6]
    #[arg(long, value_name = "N")]
    pub spare_pools: Option<u32>,
    /// Size of the largest pool that it can be granted later, a power of two [default: 2G]
    #[arg(long, value_parser = crate::size::parse, value_name = "SIZE")]
    pub largest_pool: Option<u64>,
    /// A network between the machines (the default)
    #[arg(long, overrides_with = "no_net")]
    pub net: bool,
    /// No network between the machines
    #[arg(long)]
    pub no_net: bool,
    /// A network outside for the machines: what this host reaches, by the program passt
    #[arg(long, conflicts_with_all = ["bridge", "tap"])]
    pub user_net: bool,
    /// A network outside for the machines: this bridge of the host, whose DHCP server gives them addresses
    #[arg(long, value_name = "BRIDGE", conflicts_with = "tap")]
    pub bridge: Option<String>,
    /// A network outside for the machines: the tap device of this name, in which %d is a machine's index
    #[arg(long, value_name = "TAP")]
    pub tap: Option<String>,
    /// Doorbells between the machines, served by vshmem agent (the default if the machines have the driver)
    #[arg(long, overrides_with = "no_doorbell")]
    pub doorbell: bool,
    /// No doorbells between the machines
    #[arg(long)]
    pub no_doorbell: bool,
    /// The driver vshmem.ko that the machines load, instead of one that is found; 'none' for none
    #[arg(long, value_name = "FILE", add = values::files())]
    pub driver: Option<PathBuf>,
    /// The hypervisor that runs the machines [default: the first of these]
    #[arg(long, value_name = "NAME", value_parser = hypervisors())]
    pub hypervisor: Option<String>,
    /// How the machines' instructions are executed [default: auto]
    #[arg(long, value_name = "NAME", value_parser = accelerators())]
    pub accel: Option<String>,
    /// The kernel image to boot, instead of the newest installed or downloaded one
    #[arg(long, value_name = "FILE", add = values::files())]
    pub kernel: Option<PathBuf>,
    /// Time limit for booting, in seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub timeout: u64,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
    /// Say what would be done, and do nothing: what would start, or what would change in a cluster that runs,
    /// and whether that is live or takes a removal, a restart or a rebuild
    #[arg(long)]
    pub dry_run: bool,
    /// For a cluster that runs: end and remove machines that the file does not describe any more
    #[arg(long, requires = "file")]
    pub remove: bool,
    /// For a cluster that runs: restart machines where a change takes that
    #[arg(long, requires = "file")]
    pub restart: bool,
    /// Print the JSON Schema of such a file, for editors, and start nothing
    #[arg(long)]
    pub schema: bool,
}

/// The parts of a placement that can be strict.
#[derive(Clone, Copy, PartialEq, ValueEnum)]
pub enum Strict {
    /// Cores for virtual cores, and others for the hypervisor's own threads
    Cores,
    /// Memory from the nodes of these cores, and from no others
    Memory,
    /// Cores near to the machine's devices
    Devices,
    /// The pages of machines and pools
    Pages,
}

/// Values of `--pages` and `--pool-pages`.
fn pages() -> impl TypedValueParser<Value = Pages> {
    let about = [
        "Those of 4 KiB, and no others",
        "Those of 2 MiB that the kernel puts together where it finds the room",
        "Those of 2 MiB that the host has reserved (vm.nr_hugepages)",
        "Those of 1 GiB that the host has reserved",
    ];
    let values =
        Pages::ALL.into_iter().zip(about).map(|((name, _), about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).try_map(|name| Pages::named(&name).ok_or("there are no such pages"))
}

/// Values of `--placement`.
fn policies() -> impl TypedValueParser<Value = Policy> {
    let about = [
        "Wherever the kernel's scheduler puts them",
        "Each on a core of its own, in the order of cores",
        "All of a machine on any core of one socket",
        "Each on a core of its own, on as few memory nodes as can be",
    ];
    let values =
        Policy::ALL.into_iter().zip(about).map(|((name, _), about)| PossibleValue::new(name).help(about));
    PossibleValuesParser::new(values).try_map(|name| Policy::named(&name).ok_or("there is no such policy"))
}

/// Values of `--hypervisor`.
fn hypervisors() -> PossibleValuesParser {
    let value =
        |launcher: &dyn Launcher| PossibleValue::new(launcher.facts().name).help(launcher.facts().about);
    PossibleValuesParser::new(launchers().map(value))
}

/// Values of `--transport`.
fn transports() -> PossibleValuesParser {
    let all = launchers().into_iter().flat_map(|launcher| launcher.facts().transports);
    PossibleValuesParser::new(all.map(|name| PossibleValue::new(*name)))
}

/// Values of `--accel`.
fn accelerators() -> PossibleValuesParser {
    let auto = PossibleValue::new(AUTO).help("The first of these on which a machine boots, which is tried");
    let all = launchers().into_iter().flat_map(|launcher| launcher.facts().accelerators);
    let chosen = all.filter(|(_, about)| !about.is_empty());
    let values = chosen.map(|(name, about)| PossibleValue::new(*name).help(*about));
    PossibleValuesParser::new(std::iter::once(auto).chain(values))
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem ps
  vshmem ps --json | jq -r '.clusters[].machines[].name'

Nothing is changed. A machine that has died is shown with its last output; vshmem restart starts it again, with the pool
as it is, and vshmem down removes the cluster. What the machine held in a pool is released when vshmem agent serves the
pool, by vshmem restart, and by vshmem check.")]
pub struct Ps {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = format!("\
Examples:
  vshmem exec vm0 -- uname -a
  vshmem exec vm1 -- sh -c 'echo $HOSTNAME' < input
  vshmem exec -u root vm0 -- dmesg
  vshmem exec -t vm0 -- top

The command runs as the calling user, in the same directory and environment as far as the machine has them. Output, input,
signals and the exit code are passed on. With -t the program has your terminal, and gets ctrl-C itself: editors, debuggers
and full-screen programs work. If the machine does not answer, ctrl-C ends vshmem after three seconds; if nobody
reads the output, as where a pager waits, a second one after five.

{EXIT_CODES}"))]
pub struct Exec {
    #[command(flatten)]
    pub cluster: ClusterArg,
    #[command(flatten)]
    pub how: CommandOptions,
    /// Don't pass on standard input
    #[arg(long, short = 'n')]
    pub no_stdin: bool,
    /// Give the command your terminal
    #[arg(long, short, conflicts_with = "no_stdin")]
    pub tty: bool,
    /// The machine
    #[arg(value_name = "VM", add = values::machines())]
    pub machine: String,
    #[command(flatten)]
    pub line: CommandLine,
}

#[derive(Args)]
#[command(after_help = format!("\
Examples:
  vshmem shell vm0
  vshmem shell -u root vm1
  vshmem shell -e SHELL=/bin/sh -C / vm0

Runs your login shell ($SHELL), or /bin/sh if the machine does not have it, as vshmem exec -t does.

{EXIT_CODES}"))]
pub struct Shell {
    #[command(flatten)]
    pub cluster: ClusterArg,
    #[command(flatten)]
    pub how: CommandOptions,
    /// The machine
    #[arg(value_name = "VM", add = values::machines())]
    pub machine: String,
}

/// A command line.
#[derive(Args, Clone)]
pub struct CommandLine {
    /// The command and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "COMMAND",
        add = values::command()
    )]
    pub command: Vec<OsString>,
}

/// Options of a command: its environment, directory and user.
#[derive(Args, Clone)]
pub struct CommandOptions {
    /// Set an environment variable of the command
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Start in this directory
    #[arg(long, short = 'C', value_name = "DIRECTORY", add = values::directories())]
    pub cwd: Option<PathBuf>,
    /// Run as this user: a name from this host's /etc/passwd, UID or UID:GID; on this kernel, with --local,
    /// only root can
    #[arg(long, short)]
    pub user: Option<String>,
}

#[derive(Args)]
#[command(override_usage = "vshmem run [OPTIONS] -- <COMMAND>... [: [OPTIONS] -- <COMMAND>...]...", after_help = format!("\
Examples:
  vshmem run -- ./a.out                             one process in each machine
  vshmem run --vm vm0 -- ./server : --vm vm1 -- ./client
  vshmem run --local -n 2 -- python3 program.py     two processes on this kernel
  vshmem run --local -- ./a.out                     one, in place of vshmem itself
  vshmem run -n 64 -- ./a.out                       64, distributed to the machines
  VSHMEM_KEYS=0x1000-0x1fff vshmem run -- ./a.out   only these keys go to Vshmem

The program's System V calls go to the pool that the machines share (libvshmem.so is preloaded). VSHMEM_RANK and
VSHMEM_SIZE tell each process its number and the number of processes; the first process gets standard input. When one
process fails, the others are ended, as by mpirun; the exit code is that of the first to fail. If there are several
processes, each line of output begins with the name of its machine. A machine takes 1024 processes of one run. A command
behind a colon has the cluster of the first, and options of its own besides.

{EXIT_CODES}"))]
pub struct Run {
    #[command(flatten)]
    pub cluster: ClusterArg,
    #[command(flatten)]
    pub how: CommandOptions,
    /// The machines, instead of all
    #[arg(
        long,
        value_delimiter = ',',
        value_name = "VM,...",
        add = values::machines(),
        conflicts_with = "local"
    )]
    pub vm: Vec<String>,
    /// On this kernel, not in a machine
    #[arg(long)]
    pub local: bool,
    /// Number of processes, distributed to the machines in turn
    #[arg(short = 'n', long = "processes", value_name = "N")]
    pub processes: Option<u32>,
    /// Let the other processes go on when one fails
    #[arg(long, short)]
    pub keep_going: bool,
    /// Don't begin each line of output with the name of its machine
    #[arg(long)]
    pub no_prefix: bool,
    #[command(flatten)]
    pub line: CommandLine,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem explain -- ./a.out
  VSHMEM_POOL=work vshmem explain --json -- python3

Examines the program's file, the libraries that are loaded with it, the variables VSHMEM_* and the pool, and changes
nothing. The program's arguments don't matter. VSHMEM_LOG=info reports what happens while a program runs (libvshmem(7)).
The exit code is 1 if the calls don't reach the pool.")]
pub struct Explain {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub line: CommandLine,
}

/// The further commands of `run`, behind a colon.
#[derive(Parser)]
#[command(name = "vshmem run ... :", no_binary_name = true)]
pub struct MoreRun {
    #[command(flatten)]
    pub run: Run,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem restart                           all machines that died
  vshmem restart vm1
  vshmem restart -c other vm0 vm2

A machine that runs is turned off first, like a power failure, once everything that it needs to start again has been
found. What its processes held in pools is released; other machines run on, and pools stay as they are. The machine then
has the pools that it began with; those that it was granted later have to be granted again.")]
pub struct Restart {
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// The machines; by default, all of the cluster that died
    #[arg(value_name = "VM", add = values::machines())]
    pub machines: Vec<String>,
    /// Time limit for booting each machine, in seconds
    #[arg(long, default_value_t = 120, value_name = "SECONDS")]
    pub timeout: u64,
    /// Print no progress
    #[arg(long, short)]
    pub quiet: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem down
  vshmem down --all")]
pub struct Down {
    #[command(flatten)]
    pub cluster: ClusterArg,
    /// All your clusters, whatever --cluster says
    #[arg(long)]
    pub all: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem ipcs                              all your pools
  vshmem ipcs --pool cluster.default       the pool of the machines that vshmem up started
  vshmem ipcs --waiters                    also kernels, processes and waiting threads
  vshmem exec vm0 -- vshmem ipcs           the same, as seen from a machine")]
pub struct Ipcs {
    /// Only this pool: a name, or a path with a slash
    #[arg(long, short, value_name = "POOL", env = "VSHMEM_POOL", add = values::pools())]
    pub pool: Option<String>,
    /// Also list kernels, processes and waiting threads
    #[arg(long, short)]
    pub waiters: bool,
    /// Print JSON, with all of that
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Programs can use the pool meanwhile. The check may be interrupted at any time without harm.

Exit codes:
  0    the pool is whole
  1    it was repaired, and is whole now
  4    it is damaged beyond repair
  125  it could not be checked

Examples:
  vshmem check work
  vshmem check cluster.default --json")]
pub struct Check {
    /// The pool: a name, or a path with a slash; by default, all your pools
    #[arg(env = "VSHMEM_POOL", add = values::pools())]
    pub pool: Option<String>,
    /// Print JSON, a document for each pool
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem ipcrm -q 1073872896
  vshmem ipcrm --pool work -M 0x1234 -S 0x1234
  vshmem ipcrm --pool cluster.default --all")]
pub struct Ipcrm {
    /// The pool: a name, or a path with a slash; not needed if you have only one
    #[arg(long, short, value_name = "POOL", env = "VSHMEM_POOL", add = values::pools())]
    pub pool: Option<String>,
    /// Remove the segment with this id
    #[arg(long, short = 'm', value_name = "ID")]
    pub shmem_id: Vec<i32>,
    /// Remove the segment with this key
    #[arg(long, short = 'M', value_name = "KEY", value_parser = key)]
    pub shmem_key: Vec<i32>,
    /// Remove the semaphore set with this id
    #[arg(long, short = 's', value_name = "ID")]
    pub semaphore_id: Vec<i32>,
    /// Remove the semaphore set with this key
    #[arg(long, short = 'S', value_name = "KEY", value_parser = key)]
    pub semaphore_key: Vec<i32>,
    /// Remove the queue with this id
    #[arg(long, short = 'q', value_name = "ID")]
    pub queue_id: Vec<i32>,
    /// Remove the queue with this key
    #[arg(long, short = 'Q', value_name = "KEY", value_parser = key)]
    pub queue_key: Vec<i32>,
    /// Remove everything in the pool
    #[arg(long, short)]
    pub all: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem top                               all your pools; q quits
  vshmem top --pool cluster.default --sort waiting
  vshmem top --once                        the traffic of one second, as text
  vshmem top --json --interval 5 | jq .pools[].rates

Keys: q quit; m, b, w, u, i sort by rate, bytes, waiting, last use, id; r reverses; t shows the threads that wait
instead of the IPC objects; arrows, page keys and Home scroll. If the output is not a terminal, each sample is
printed in full. No lock is taken, so programs are not delayed.")]
pub struct Top {
    /// Only this pool: a name, or a path with a slash
    #[arg(long, short, value_name = "POOL", env = "VSHMEM_POOL", add = values::pools())]
    pub pool: Option<String>,
    /// Seconds between samples, at least 0.1
    #[arg(long, short = 'n', default_value_t = 1.0, value_name = "SECONDS", value_parser = seconds)]
    pub interval: f64,
    /// One sample, after one interval
    #[arg(long, short = '1')]
    pub once: bool,
    /// A line of JSON for each sample
    #[arg(long)]
    pub json: bool,
    /// How IPC objects are sorted
    #[arg(long, short, value_enum, default_value_t = Sort::Rate)]
    pub sort: Sort,
}

/// The order of IPC objects.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By messages per second
    Rate,
    /// By bytes in them
    Bytes,
    /// By waiting threads
    Waiting,
    /// By last use
    Used,
    /// By id
    Id,
}

fn seconds(text: &str) -> Result<f64, String> {
    let number = text.parse::<f64>().ok();
    let good = number.filter(|seconds| (0.1..=3600.0).contains(seconds));
    good.ok_or_else(|| "an interval is a number of seconds from 0.1 to 3600".into())
}

/// A key, decimal, or hexadecimal after `0x`.
fn key(text: &str) -> Result<i32, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok().map(|key| key as i32),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| "a key is a decimal number, or a hexadecimal one after 0x".into())
}

#[derive(Subcommand)]
pub enum Pool {
    /// Make an empty pool
    #[command(after_help = "\
Examples:
  vshmem pool create work --size 1G
  VSHMEM_POOL=work LD_PRELOAD=libvshmem.so.1 ./a.out
  vshmem pool create large --size 8G --limit semmni=100000 --limit msgmnb=1M
  vshmem pool create /dev/dax0.0

Only the used parts of a pool take memory, unless it is reserved. A pool that VSHMEM_POOL names is made at first use if it
does not exist.

A path may be that of a device, such as a DAX device. The pool is then all of its memory, which must begin with zeros:
what else lies there is lost.

Limits: shmmax, shmall (in pages), shmmni, semmsl, semmns, semopm, semmni, msgmax, msgmnb, msgmni; shmget(2), semget(2) and
msgget(2) explain them. The number of IPC objects is also limited by the pool's size.")]
    Create {
        /// A name, or a path with a slash
        name: String,
        /// Its size [default: 1G]
        #[arg(long, short, value_parser = crate::size::parse)]
        size: Option<u64>,
        /// Its permission bits, in octal [default: 600]
        #[arg(long, value_parser = mode)]
        mode: Option<u32>,
        /// Back all of it with memory now and for good
        #[arg(long)]
        reserve: bool,
        /// Begin its file with a header from which a machine's kernel makes a DAX device, if the machine gets
        /// the file as persistent memory
        #[arg(long)]
        dax: bool,
        /// Begin each segment at a multiple of this, such as 2M, for members that map the pool so:
        /// those that have it as a DAX device of that alignment, or on hugetlbfs
        #[arg(long, default_value = "4K", value_parser = crate::size::parse)]
        align: u64,
        /// A System V limit that differs from Linux's default; may be repeated
        #[arg(long, short, value_name = "NAME=VALUE", value_parser = limit)]
        limit: Vec<Limit>,
    },
    /// List your pools
    #[command(alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove unused pools
    #[command(
        alias = "remove",
        after_help = "\
Examples:
  vshmem pool rm work
  vshmem pool rm work --force

A pool in use by programs or machines, or by a cluster whose machines can be restarted, is not removed (exit code 1)."
    )]
    Rm {
        /// Also remove pools in use: their users keep them until they end, and nobody else finds them
        #[arg(long, short)]
        force: bool,
        /// Names, or paths with a slash
        #[arg(required = true, add = values::pools())]
        names: Vec<String>,
    },
}

/// `NAME=VALUE`.
pub fn limit(text: &str) -> Result<Limit, String> {
    let (name, value) = text.split_once('=').ok_or("a limit is written NAME=VALUE, like semmni=100000")?;
    Limit::new(name, crate::size::parse(value)?)
}

fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("permission bits are three octal digits, like 600 or 660".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read() {
        assert_eq!(key("0x1234"), Ok(0x1234));
        assert_eq!(key("0xffffffff"), Ok(-1));
        assert_eq!(key("-5"), Ok(-5));
        assert!(key("0x").is_err() && key("x").is_err() && key("0x100000000").is_err());
    }

    #[test]
    fn limits_are_read() {
        assert_eq!(limit("msgmnb=1M"), Limit::new("msgmnb", 1 << 20));
        assert!(limit("semmni").unwrap_err().contains("NAME=VALUE"));
        assert!(limit("semmni=many").is_err() && limit("=5").is_err());
    }
}
