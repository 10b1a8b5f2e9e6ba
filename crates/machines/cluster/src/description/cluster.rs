//! The description of a cluster, as a file or options give it.

use super::network::{self, Network};
use super::values;
use clap::{Args, ValueHint};
use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::de::{Deserializer, Error, Unexpected, Visitor};
use serde::Deserialize;
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use vshmem_base::size;
use vshmem_devices::want::Want;
use vshmem_hypervisor::launcher::options::RootKind;
use vshmem_placement::pages::{PageRules, Pages, PoolNodes};
use vshmem_placement::rules::{Insist, Memory, Policy, Rules};

/// A cluster of machines on this host: `vshmem up FILE.toml` starts it. Everything has a default.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[schemars(title = "A cluster of Vshmem")]
pub struct Description {
    /// The cluster's name, unless the command line or VSHMEM_CLUSTER gives another; by default, "default".
    #[arg(
        long = "cluster",
        short = 'c',
        env = "VSHMEM_CLUSTER",
        alias = "name",
        value_name = "NAME",
        help = "The cluster's name [default: the file's, or default]"
    )]
    pub name: Option<String>,
    /// The hypervisor that runs the machines, as vshmem up --hypervisor takes it.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = values::hypervisors(),
        help = "The hypervisor that runs the machines [default: the first of these]"
    )]
    pub hypervisor: Option<String>,
    /// The service that starts the machines on the hypervisor, and then shows them and can end them, too: see
    /// docs/guide-cluster-file.md. By default, vshmem itself starts them.
    #[arg(skip)]
    pub via: Option<String>,
    /// The URI of that service; by default, the one for this user.
    #[arg(skip)]
    pub uri: Option<String>,
    /// The accelerator that executes the machines' instructions, as vshmem up --accel takes it.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = values::accelerators(),
        help = "How the machines' instructions are executed [default: auto]"
    )]
    pub accel: Option<String>,
    /// The kernel image to boot; by default, the newest that is installed or downloaded.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub kernel: Option<PathBuf>,
    /// The driver vshmem.ko that the machines load; "none" for none. By default, one that is found.
    #[arg(long, value_name = "FILE", value_hint = ValueHint::AnyPath)]
    pub driver: Option<PathBuf>,
    /// The networks that the machines are on; true or false: the one between them, by which they reach each
    /// other by name.
    #[command(flatten)]
    #[serde(deserialize_with = "network::read")]
    #[schemars(schema_with = "network::schema")]
    pub network: Option<Network>,
    /// Doorbells between the machines; by default, if they have the driver.
    #[arg(skip)]
    pub doorbell: Option<bool>,
    /// Whether the machines boot, also where they could thaw from a template in a fraction of the time; by
    /// default, false. See docs/guide-start-fast.md.
    #[arg(
        long,
        num_args = 0,
        default_missing_value = "true",
        help = "Boot the machines, also where they could thaw from a template"
    )]
    pub cold: Option<bool>,
    /// How machines with the root of this host see its files: by a file server ("9p"), which is the default,
    /// or as a disk that has what they were at the start ("erofs"). See docs/guide-cluster-file.md.
    #[arg(
        long,
        value_name = "KIND",
        value_parser = values::roots(),
        help = "How machines see the files of this host's system [default: 9p]"
    )]
    pub root: Option<RootKind>,
    /// Directories that the machines see, read-only (DIR) or writable (DIR:rw).
    #[arg(
        long = "share",
        value_name = "DIR[:ro|rw]",
        value_hint = ValueHint::DirPath,
        help = "A directory that the machines see, read-only (ro, the default) or writable (rw); may be repeated"
    )]
    pub shares: Vec<String>,
    /// Number of pools that each machine can be granted later; by default, 6.
    #[arg(long, value_name = "N")]
    pub spare_pools: Option<u32>,
    /// Size of the largest pool that it can be granted later, a power of two; by default, 2G.
    #[arg(long, value_name = "SIZE")]
    pub largest_pool: Option<Size>,
    /// The placement of the machines on this host. Without it each virtual core is pinned to a core of its
    /// own, if there are as many.
    #[command(flatten)]
    pub placement: Option<Placement>,
    /// The pages that memory is in; by default, what the kernel gives.
    #[command(flatten)]
    pub pages: Option<PagesWanted>,
    /// The machines; by default two.
    #[arg(skip)]
    pub machines: Vec<MachineGroup>,
    /// The pools, by their names in the machines. All machines share the pool "default" unless it says
    /// which do.
    #[arg(skip)]
    pub pools: BTreeMap<String, Pool>,
}

/// The placement of machines on this host, and of their memory. What is strict is an error if it can't be
/// had; what is preferred is had as far as it can be, and the rest is said.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Placement {
    /// The policy for the cores on which virtual cores may run; by default, numa-first.
    #[arg(
        long = "placement",
        value_name = "POLICY",
        value_parser = values::policies(),
        help = "Where virtual cores may run [default: the file's; none is asked for without a file]"
    )]
    pub policy: Option<Policy>,
    /// Cores for virtual cores, and others for the hypervisor's own threads; by default, preferred.
    #[arg(skip)]
    pub cores: Option<Insist>,
    /// Memory from the nodes of these cores, or from all nodes by turns; by default, preferred.
    #[arg(skip)]
    pub memory: Option<Memory>,
    /// Cores near to the devices that a machine has for itself; by default, preferred.
    #[arg(skip)]
    pub devices: Option<Insist>,
    /// Virtual cores may share a core of the host as its SMT siblings.
    #[arg(long)]
    pub smt: bool,
    /// Cores of each memory node that are left to the host; by default, none.
    #[arg(long, value_name = "CORES")]
    pub reserve_cores: Option<u32>,
}

/// The pages that memory is in. Where strict ones can't be had that is an error; where preferred ones can't,
/// the next best are taken, and that is said.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct PagesWanted {
    /// Of the machines' memory, unless they say themselves.
    #[arg(
        id = "pages",
        long,
        value_name = "PAGES",
        value_parser = values::pages(),
        help = "The pages of the machines' memory [default: the file's, or what the kernel gives]"
    )]
    pub machines: Option<Pages>,
    /// Of pools that are made for the cluster, unless they say themselves.
    #[arg(
        id = "pool_pages",
        long = "pool-pages",
        value_name = "PAGES",
        value_parser = values::pages(),
        help = "The pages of pools that are made; others than small ones are taken at once, and for good"
    )]
    pub pools: Option<Pages>,
    /// Strict or preferred; by default, preferred.
    #[arg(skip)]
    pub insist: Option<Insist>,
    /// Take all memory before machines boot. That of reserved pages (2M, 1G) always is.
    #[arg(long)]
    pub prealloc: bool,
    /// Threads that do so; by default, one for each core that is near to the memory, up to 16.
    #[arg(long, value_name = "N")]
    pub prealloc_threads: Option<u32>,
}

/// Machines that are alike, or one machine.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
#[schemars(rename = "Group")]
pub struct MachineGroup {
    /// Its name. With a count, a number follows it: worker0, worker1. Without a name they are vm0, vm1, ...
    #[arg(skip)]
    pub name: Option<String>,
    /// The number of such machines. Without it there is one.
    #[arg(id = "machines", short = 'n', long, value_name = "N", help = "Number of machines [default: 2]")]
    pub count: Option<u32>,
    /// Virtual cores of each; by default, one.
    #[arg(long, value_name = "N", help = "Virtual cores of each machine [default: 1]")]
    pub cpus: Option<u32>,
    /// Memory of each; by default, 512M.
    #[arg(long, value_name = "SIZE", help = "Memory of each machine [default: 512M]")]
    pub memory: Option<Size>,
    /// The pages of their memory; by default, those of the cluster's machines.
    #[arg(skip)]
    pub pages: Option<Pages>,
    /// Devices of the host that each has for itself: an address ("0000:01:00.0"), a virtual function
    /// ("vf of 0000:01:00.0"), any of a vendor and device ("10de:20b5") or of a kind ("nvme"); with a count
    /// before it, several ("2 x nvme"). See vshmem devices.
    #[arg(skip)]
    pub devices: Vec<Want>,
    /// The system that they boot: "host", which is the default, for the root of this host; "slim" for Vshmem
    /// itself and little more; or a disk image (qcow2 or raw) with systemd and cloud-init, such as Debian's
    /// and Ubuntu's cloud images: a path, a name such as "debian/12", or an address (https://..., file:...). It
    /// is never written to.
    #[arg(skip)]
    pub image: Option<PathBuf>,
    /// The kernel image that they boot instead of the disk's boot loader.
    #[arg(skip)]
    pub kernel: Option<PathBuf>,
    /// The initramfs of that kernel; without a disk image, it is the whole system.
    #[arg(skip)]
    pub initramfs: Option<PathBuf>,
    /// The parameters of that kernel, such as "root=/dev/vda1".
    #[arg(skip)]
    pub parameters: Option<String>,
}

/// A pool.
#[derive(Debug, Clone, Default, PartialEq, Args, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case", default)]
pub struct Pool {
    /// A pool of this host that exists already: a name, or a path with a slash. Without it the pool is made
    /// for the cluster, and removed with it.
    #[arg(skip)]
    pub host: Option<String>,
    /// Its size, a power of two; by default 1G, if the hypervisor has room for it.
    #[arg(
        id = "pool_size",
        long = "pool-size",
        value_name = "SIZE",
        help = "Size of the pool that they share, a power of two; by default 1G, if the hypervisor has room for it"
    )]
    pub size: Option<Size>,
    /// The transport by which the machines get it; by default, the hypervisor's first one.
    #[arg(
        long,
        value_name = "NAME",
        value_parser = values::transports(),
        help = "The transport by which they get the pool; by default, the hypervisor's first one"
    )]
    pub transport: Option<String>,
    /// Each segment begins at a multiple of this, such as 2M; by default, 4K.
    #[arg(skip)]
    pub align: Option<Size>,
    /// Back all of it with memory now and for good.
    #[arg(skip)]
    pub reserve: bool,
    /// The pages that it is in; by default, those of the cluster's pools. Others than small ones are taken
    /// now and for good.
    #[arg(skip)]
    pub pages: Option<Pages>,
    /// The memory node of the host that its memory comes from, or "interleave": all by turns.
    #[arg(
        id = "pool_node",
        long = "pool-node",
        value_name = "NODE",
        help = "The memory node of this host that their pool's memory comes from, or 'interleave'"
    )]
    pub node: Option<PoolNodes>,
    /// The machines that get it, by their names or that of their group; by default, all.
    #[arg(skip)]
    pub machines: Option<Vec<String>>,
}

/// A number of bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size(pub u64);

impl FromStr for Size {
    type Err = String;

    fn from_str(text: &str) -> Result<Size, String> {
        size::parse(text).map(Size)
    }
}

struct ReadSize;

impl Visitor<'_> for ReadSize {
    type Value = Size;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a size, such as \"512M\" or a number of bytes")
    }

    fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
        u64::try_from(bytes).map(Size).map_err(|_| E::invalid_value(Unexpected::Signed(bytes), &self))
    }

    fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
        Ok(Size(bytes))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
        text.parse().map_err(E::custom)
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Size, D::Error> {
        from.deserialize_any(ReadSize)
    }
}

impl JsonSchema for Size {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Size".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "type": ["string", "integer"],
            "pattern": "^[0-9]+ *([KMGTkmgt]([Ii]?[Bb])?|[Bb])?$",
            "minimum": 0,
            "examples": ["512M", "1G"],
        })
    }
}

impl Description {
    /// This description with the values of another one in place of its own; shares and pools are added.
    pub fn overridden_by(self, other: Description) -> Description {
        let mut pools = self.pools;
        for (name, theirs) in other.pools {
            let ours = pools.remove(&name).unwrap_or_default();
            pools.insert(name, ours.overridden_by(theirs));
        }
        Description {
            name: other.name.or(self.name),
            hypervisor: other.hypervisor.or(self.hypervisor),
            via: other.via.or(self.via),
            uri: other.uri.or(self.uri),
            accel: other.accel.or(self.accel),
            kernel: other.kernel.or(self.kernel),
            driver: other.driver.or(self.driver),
            network: match (self.network, other.network) {
                (Some(ours), Some(theirs)) => Some(ours.overridden_by(theirs)),
                (ours, theirs) => theirs.or(ours),
            },
            doorbell: other.doorbell.or(self.doorbell),
            cold: other.cold.or(self.cold),
            root: other.root.or(self.root),
            shares: self.shares.into_iter().chain(other.shares).collect(),
            spare_pools: other.spare_pools.or(self.spare_pools),
            largest_pool: other.largest_pool.or(self.largest_pool),
            placement: match (self.placement, other.placement) {
                (Some(ours), Some(theirs)) => Some(ours.overridden_by(theirs)),
                (ours, theirs) => theirs.or(ours),
            },
            pages: match (self.pages, other.pages) {
                (Some(ours), Some(theirs)) => Some(ours.overridden_by(theirs)),
                (ours, theirs) => theirs.or(ours),
            },
            machines: if other.machines.is_empty() { self.machines } else { other.machines },
            pools,
        }
    }
}

impl Placement {
    fn overridden_by(self, other: Placement) -> Placement {
        Placement {
            policy: other.policy.or(self.policy),
            cores: other.cores.or(self.cores),
            memory: other.memory.or(self.memory),
            devices: other.devices.or(self.devices),
            smt: other.smt || self.smt,
            reserve_cores: other.reserve_cores.or(self.reserve_cores),
        }
    }

    /// The rules that are meant, with every default.
    pub fn rules(&self) -> Rules {
        Rules {
            policy: self.policy.unwrap_or_default(),
            cores: self.cores.unwrap_or_default(),
            memory: self.memory.unwrap_or_default(),
            devices: self.devices.unwrap_or_default(),
            smt: self.smt,
            reserve_cores: self.reserve_cores.unwrap_or_default(),
        }
    }
}

impl PagesWanted {
    fn overridden_by(self, other: PagesWanted) -> PagesWanted {
        PagesWanted {
            machines: other.machines.or(self.machines),
            pools: other.pools.or(self.pools),
            insist: other.insist.or(self.insist),
            prealloc: other.prealloc || self.prealloc,
            prealloc_threads: other.prealloc_threads.or(self.prealloc_threads),
        }
    }

    /// The rules that are meant, with every default.
    pub fn rules(&self) -> PageRules {
        PageRules {
            insist: self.insist.unwrap_or_default(),
            prealloc: self.prealloc,
            threads: self.prealloc_threads.unwrap_or_default(),
        }
    }
}

impl Pool {
    fn overridden_by(self, other: Pool) -> Pool {
        Pool {
            host: other.host.or(self.host),
            size: other.size.or(self.size),
            transport: other.transport.or(self.transport),
            align: other.align.or(self.align),
            reserve: self.reserve || other.reserve,
            pages: other.pages.or(self.pages),
            node: other.node.or(self.node),
            machines: other.machines.or(self.machines),
        }
    }
}
