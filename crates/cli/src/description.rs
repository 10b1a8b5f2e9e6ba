//! The description of a cluster from the command line of `vshmem up`: of options, and of a file if it names
//! one.

use crate::args;
use schemars::generate::SchemaSettings;
use schemars::transform::{transform_subschemas, Transform};
use schemars::Schema;
use serde_json::Value;
use vshmem_base::{error, Result};
use vshmem_cluster::description::cluster::{Description, MachineGroup, PagesWanted, Placement, Pool, Size};
use vshmem_cluster::description::file::File;
use vshmem_cluster::description::network::Network;
use vshmem_cluster::description::pools::OWN;
use vshmem_hypervisor::launcher::options::ClusterOptions;
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_inspect::HostPool;
use vshmem_placement::rules::{Insist, Memory};

/// The launcher and the options that a command line means.
pub fn options(up: &args::Up) -> Result<(&'static dyn Launcher, ClusterOptions)> {
    let of_options = of_options(up)?;
    let Some(path) = &up.file else {
        return all_reserved(of_options, up).resolve().map_err(|fault| fault.error);
    };
    let file = File::read(path)?;
    let description = file.description.clone().overridden_by(of_options);
    all_reserved(description, up).resolve().map_err(|fault| file.explain(fault))
}

/// The description with `--reserve` applied to all of its pools.
fn all_reserved(mut description: Description, up: &args::Up) -> Description {
    if up.reserve {
        description.pools.entry(OWN.into()).or_default();
        description.pools.values_mut().for_each(|pool| pool.reserve = true);
    }
    description
}

fn of_options(up: &args::Up) -> Result<Description> {
    let alike = MachineGroup {
        count: up.machines,
        cpus: up.cpus,
        memory: up.memory.map(Size),
        ..MachineGroup::default()
    };
    let machines = match alike == MachineGroup::default() {
        true => vec![],
        // As many as without any option.
        false => vec![MachineGroup { count: alike.count.or(Some(2)), ..alike }],
    };
    let own = Pool {
        size: up.pool_size.map(Size),
        transport: up.transport.clone(),
        node: up.pool_node,
        ..Pool::default()
    };
    let mut description = Description {
        name: up.cluster.clone(),
        hypervisor: up.hypervisor.clone(),
        via: None,
        uri: None,
        accel: up.accel.clone(),
        kernel: up.kernel.clone(),
        driver: up.driver.clone(),
        network: network(up),
        doorbell: (up.doorbell || up.no_doorbell).then_some(!up.no_doorbell),
        shares: up.share.clone(),
        spare_pools: up.spare_pools,
        largest_pool: up.largest_pool.map(Size),
        placement: placement(up),
        pages: pages(up),
        machines,
        pools: [(OWN.to_owned(), own)].into(),
    };
    for wanted in &up.pool {
        let HostPool { name, .. } = HostPool::find(wanted)?.with_name(None)?;
        let pool = Pool { host: Some(wanted.clone()), ..Pool::default() };
        if description.pools.insert(name.clone(), pool).is_some() {
            return Err(error!("two pools would be called {name}").code(2));
        }
    }
    Ok(description)
}

/// The networks that options describe, if they do.
fn network(up: &args::Up) -> Option<Network> {
    let network = Network {
        private: (up.net || up.no_net).then_some(!up.no_net),
        user: up.user_net.then_some(true),
        bridge: up.bridge.clone(),
        tap: up.tap.clone(),
        ..Network::default()
    };
    (network != Network::default()).then_some(network)
}

/// The placement that options describe, if they do.
fn placement(up: &args::Up) -> Option<Placement> {
    let memory = match up.strict.contains(&args::Strict::Memory) {
        true => Some(Memory::Strict),
        false => up.interleave.then_some(Memory::Interleave),
    };
    let placement = Placement {
        policy: up.placement,
        cores: up.strict.contains(&args::Strict::Cores).then_some(Insist::Strict),
        memory,
        devices: up.strict.contains(&args::Strict::Devices).then_some(Insist::Strict),
        smt: up.smt.then_some(true),
        reserve_cores: up.reserve_cores,
    };
    (placement != Placement::default()).then_some(placement)
}

/// The pages that options describe, if they do.
fn pages(up: &args::Up) -> Option<PagesWanted> {
    let pages = PagesWanted {
        machines: up.pages,
        pools: up.pool_pages,
        insist: up.strict.contains(&args::Strict::Pages).then_some(Insist::Strict),
        prealloc: up.prealloc.then_some(true),
        prealloc_threads: up.prealloc_threads,
    };
    (pages != PagesWanted::default()).then_some(pages)
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
        up: args::Up,
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
