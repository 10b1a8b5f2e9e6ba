//! The command `vshmem up`. Its options, and a file if it names one, describe a cluster.

use crate::changes;
use crate::complete::values;
use crate::output::print;
use crate::progress;
use clap::{Args, ValueEnum};
use schemars::generate::SchemaSettings;
use schemars::transform::{transform_subschemas, Transform};
use schemars::Schema;
use serde_json::Value;
use std::io::IsTerminal;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use vshmem_base::error::Explain;
use vshmem_base::{error, interrupt, size, Result};
use vshmem_cluster::change::apply::{changeable, Permitted};
use vshmem_cluster::description::cluster::{Description, MachineGroup, Pool};
use vshmem_cluster::description::file::File;
use vshmem_cluster::description::pools::OWN;
use vshmem_cluster::host::rehearsal::rehearse;
use vshmem_cluster::host::up::{up as start, UpOptions};
use vshmem_cluster::images::Images;
use vshmem_hypervisor::launcher::options::ClusterOptions;
use vshmem_hypervisor::launcher::table::launchers;
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_inspect::HostPool;
use vshmem_placement::rules::{Insist, Memory};

#[derive(Args)]
#[command(after_help = format!("\
Examples:
  vshmem up
  vshmem up -n 4 --cpus 2 --memory 1G --pool-size 1G
  vshmem up --rw
  vshmem up --share ~/data --share ~/results:rw
  vshmem up --image debian/12 --timeout 600
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
read-only except for the current directory with --rw, and for what is shared with rw; what machines write elsewhere
goes to a private layer in their memory.
They reach each other as vm0, vm1, ... (10.77.0.1, 10.77.0.2, ...).
{}", launchers().map(|launcher| launcher.facts().needs).join("\n")))]
pub struct Up {
    /// A file that describes the cluster (TOML)
    #[arg(conflicts_with_all = ["machines", "cpus", "memory", "image"], add = values::files())]
    pub file: Option<PathBuf>,
    #[command(flatten)]
    pub alike: MachineGroup,
    /// The system that they boot instead of this host's: a disk image with systemd and cloud-init, as a file,
    /// a name (debian/12), or an address (https://..., file:...); or slim
    #[arg(long, add = values::images())]
    pub image: Option<PathBuf>,
    #[command(flatten)]
    pub own_pool: Pool,
    #[command(flatten)]
    pub description: Description,
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
    /// Let the machines write in the current directory: files that they make there are on this host
    #[arg(long)]
    pub rw: bool,
    /// What must be had as it is asked for: otherwise the next best is taken, and named
    #[arg(long, value_enum, value_delimiter = ',', value_name = "WHAT")]
    pub strict: Vec<Strict>,
    /// Take the machines' memory from all nodes by turns
    #[arg(long)]
    pub interleave: bool,
    /// A network between the machines (the default)
    #[arg(long, overrides_with = "no_net")]
    pub net: bool,
    /// No network between the machines
    #[arg(long)]
    pub no_net: bool,
    /// Have machines wake each other's waiters (doorbells), by vshmem agent: the default if they have the
    /// driver
    #[arg(long, overrides_with = "no_doorbell")]
    pub doorbell: bool,
    /// No doorbells: waiters look every 2 ms
    #[arg(long)]
    pub no_doorbell: bool,
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

/// Starts machines.
pub fn up(up: &Up) -> Result<u8> {
    if up.schema {
        return print(&schema()).map(|()| 0);
    }
    let begun = Instant::now();
    interrupt::watch();
    let (launcher, mut options) = options(up)?;
    let up_options = UpOptions { timeout: Duration::from_secs(up.timeout), overcommit: up.overcommit };
    let images = Images::find(&mut options)?;
    if up.dry_run {
        return changes::show(launcher, &options, up.overcommit, &images);
    }
    let quiet = up.quiet;
    if images.missing().next().is_some() {
        // Nothing is downloaded for a cluster that would be refused.
        if changeable(&options.cluster)?.is_none() {
            rehearse(launcher, &options, up.overcommit)?;
        }
        images.download(&mut options, &mut progress::of_images(quiet))?;
    }
    let permitted = Permitted { remove: up.remove, restart: up.restart, overcommit: up.overcommit };
    if up.file.is_some() && changes::update(&options, permitted, up_options.timeout, quiet)? {
        return Ok(0);
    }
    let mut tell = changes::progress_printer("up", quiet);
    let record = start(launcher, &options, up_options, &mut tell)?;
    if !quiet {
        let names: Vec<_> = record.machines.iter().map(|m| m.name.as_str()).collect();
        print(&format!(
            "{} up in {:.1} s, sharing a pool of {}\n",
            names.join(", "),
            begun.elapsed().as_secs_f64(),
            size::show(record.pool_size)
        ))?;
        if std::io::stderr().is_terminal() {
            tell!("{}", advice(&record.name, names[0]));
        }
    }
    Ok(0)
}

/// The commands that come next.
fn advice(cluster: &str, machine: &str) -> String {
    let option = match cluster {
        "default" => String::new(),
        name => format!(" -c {name}"),
    };
    format!(
        "Try: vshmem exec{option} {machine} -- uname -a; vshmem run{option} -- PROGRAM; vshmem down{option}"
    )
}

/// The launcher and the options that a command line means.
pub fn options(up: &Up) -> Result<(&'static dyn Launcher, ClusterOptions)> {
    let mut description = of_options(up)?;
    let file = up.file.as_deref().map(File::read).transpose()?;
    if let Some(file) = &file {
        description = file.description.clone().overridden_by(description);
    }
    if up.reserve {
        description.pools.entry(OWN.into()).or_default();
        description.pools.values_mut().for_each(|pool| pool.reserve = true);
    }
    description.resolve().map_err(|fault| match &file {
        Some(file) => file.explain(fault),
        None => fault.error,
    })
}

/// The description by options alone. Those that are declared with its parts are in it; here are those by
/// which several say one thing, or one says something of several.
fn of_options(up: &Up) -> Result<Description> {
    let mut description = up.description.clone();
    let alike = MachineGroup { image: up.image.clone(), ..up.alike.clone() };
    if alike != MachineGroup::default() {
        // As many as without any option.
        let count = alike.count.or(Some(2));
        description.machines = vec![MachineGroup { count, ..alike }];
    }
    if up.rw {
        let here = std::env::current_dir().explain(|| "there is no current directory".into())?;
        description.shares.push(format!("{}:rw", here.display()));
    }
    if up.net || up.no_net {
        description.network.get_or_insert_default().private = Some(!up.no_net);
    }
    if up.doorbell || up.no_doorbell {
        description.doorbell = Some(!up.no_doorbell);
    }
    if up.interleave {
        description.placement.get_or_insert_default().memory = Some(Memory::Interleave);
    }
    for strict in &up.strict {
        let insist = Some(Insist::Strict);
        match strict {
            Strict::Cores => description.placement.get_or_insert_default().cores = insist,
            Strict::Memory => description.placement.get_or_insert_default().memory = Some(Memory::Strict),
            Strict::Devices => description.placement.get_or_insert_default().devices = insist,
            Strict::Pages => description.pages.get_or_insert_default().insist = insist,
        }
    }
    description.pools = [(OWN.to_owned(), up.own_pool.clone())].into();
    for wanted in &up.pool {
        let HostPool { name, .. } = HostPool::find(wanted)?.with_name(None)?;
        let pool = Pool { host: Some(wanted.clone()), ..Pool::default() };
        if description.pools.insert(name.clone(), pool).is_some() {
            return Err(error!("two pools would be called {name}").code(2));
        }
    }
    Ok(description)
}

/// The schema of a file that describes a cluster.
pub fn schema() -> String {
    let settings = SchemaSettings::draft2020_12().with_transform(NoNull);
    let schema = settings.into_generator().into_root_schema_for::<Description>();
    serde_json::to_string_pretty(&schema).expect("it is plain data") + "\n"
}

/// A transformation of schemas that removes null, which TOML does not have.
#[derive(Clone)]
struct NoNull;

impl Transform for NoNull {
    fn transform(&mut self, schema: &mut Schema) {
        transform_subschemas(self, schema);
        if schema.get("default").is_some_and(Value::is_null) {
            schema.remove("default");
        }
        if let Some(Value::Array(choices)) = schema.get_mut("anyOf") {
            choices.retain(|choice| choice["type"] != "null");
            if let [only] = &choices[..] {
                let reference = only["$ref"].clone();
                schema.remove("anyOf");
                schema.insert("$ref".into(), reference);
            }
        }
        if let Some(Value::Array(kinds)) = schema.get_mut("type") {
            kinds.retain(|kind| kind != "null");
            if let [only] = &kinds[..] {
                let only = only.clone();
                schema.insert("type".into(), only);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;
    use vshmem_placement::pages::{PageRules, Pages, PoolNodes};

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        up: Up,
    }

    fn resolved(words: &[&str]) -> Result<ClusterOptions> {
        let words = ["up"].iter().chain(words).copied();
        options(&Line::parse_from(words).up).map(|(_, options)| options)
    }

    #[test]
    fn options_are_a_description() {
        let four = resolved(&["-n", "4", "--cpus", "2", "--reserve", "--no-net", "-c", "x"]).unwrap();
        assert_eq!((four.machines.len(), four.machines[3].cpus), (4, 2));
        assert!(four.pools[0].reserve && !four.network && four.cluster == "x");
        let two = resolved(&["--memory", "1G", "--pool-size", "64M", "--doorbell"]).unwrap();
        assert_eq!((two.machines.len(), two.machines[0].memory), (2, 1 << 30));
        assert_eq!((two.pools[0].size, two.doorbell), (64 << 20, Some(true)));
        assert!(two.placement.is_none());
        let placed =
            resolved(&["--strict", "cores,memory", "--smt", "--reserve-cores", "1"]).unwrap().placement;
        let said = "numa-first, cores strict, memory strict, SMT siblings, 1 of each node's cores reserved";
        assert_eq!(placed.map(|rules| rules.to_string()).as_deref(), Some(said));
        let outside = |words: &[&str]| resolved(words).unwrap().uplink.map(|uplink| uplink.to_string());
        assert_eq!(outside(&["--bridge", "br0"]).as_deref(), Some("bridge br0"));
        assert_eq!(outside(&["--tap", "t%d"]).as_deref(), Some("tap t%d"));
        assert_eq!(outside(&["--user-net"]).as_deref(), Some("user"));
        assert_eq!(resolved(&["-n", "0"]).unwrap_err().exit_code(), 2);
        let large = resolved(&["--pages", "2M", "--pool-pages", "transparent", "--pool-node", "interleave"]);
        let large = large.unwrap();
        assert_eq!((large.machines[0].pages, large.pages), (Pages::named("2M"), PageRules::default()));
        assert_eq!(large.pools[0].pages, Pages::named("transparent"));
        assert_eq!(large.pools[0].node, Some(PoolNodes::Interleave));
        let ahead = resolved(&["--strict", "pages", "--prealloc", "--prealloc-threads", "3"]).unwrap();
        assert!(ahead.placement.is_none(), "pages are no matter of places");
        assert_eq!(ahead.pages.to_string(), "strict, taken ahead of time by 3 threads");
    }

    #[test]
    fn examples_are_right() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster");
        let files = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let names: Vec<_> = files
            .map(|file| resolved(&[file.to_str().unwrap()]).unwrap_or_else(|why| panic!("{why}")))
            .map(|options| options.cluster)
            .collect();
        assert!(names.len() >= 4 && names.contains(&"boss".into()), "{names:?}");
        let guide = include_str!("../../../docs/guide-cluster-file.md");
        let example = include_str!("../../../examples/cluster/boss-and-workers.toml");
        let (_comment, shown) = example.split_once('\n').unwrap();
        assert!(
            guide.contains(shown),
            "the guide shows another file than examples/cluster/boss-and-workers.toml"
        );
    }

    #[test]
    fn what_the_guide_shows_of_files_is_right() {
        let guide = include_str!("../../../docs/guide-cluster-file.md");
        let blocks: Vec<_> =
            guide.split("```toml\n").skip(1).filter_map(|it| it.split("```").next()).collect();
        assert!(blocks.len() >= 8, "{}", blocks.len());
        for block in blocks {
            // Some are a part of a table.
            let whole =
                if block.starts_with("image") { format!("[[machines]]\n{block}") } else { block.into() };
            let file = File::parse("guide".into(), whole, std::path::Path::new("/")).unwrap();
            if let Err(fault) = file.description.resolve() {
                panic!("{}", file.explain(fault));
            }
        }
    }

    #[test]
    fn options_come_on_top_of_a_file() {
        let path = std::env::temp_dir().join(format!("vshmem-cluster-{}.toml", std::process::id()));
        let text =
            "name = 'a'\nnetwork = true\nshares = ['/usr']\n[[machines]]\n[pools.default]\nsize = '4M'\n\
             [placement]\npolicy = 'pinned'\nmemory = 'interleave'";
        std::fs::write(&path, text).unwrap();
        let file = path.to_str().unwrap();
        let with =
            resolved(&[file, "-c", "b", "--no-net", "--share", "/opt", "--reserve", "--strict", "cores"])
                .unwrap();
        let bad = resolved(&[file, "--accel", "auto", "--spare-pools", "90"]).unwrap_err().to_string();
        std::fs::remove_file(&path).unwrap();
        assert_eq!((with.cluster.as_str(), with.network, with.machines.len()), ("b", false, 1));
        assert_eq!((with.pools[0].size, with.pools[0].reserve), (4 << 20, true));
        assert_eq!(with.shares, ["/usr", "/opt"]);
        assert_eq!(
            with.placement.map(|rules| rules.to_string()).as_deref(),
            Some("pinned, cores strict, memory interleaved")
        );
        assert!(bad.starts_with("a machine has room"), "{bad}");
    }
}
