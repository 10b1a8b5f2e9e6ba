//! The topology of this host, or of another, as hwloc has it.

use crate::topology::{Core, Node, Topology};
use hwlocality::cpu::cpuset::CpuSet as Bitmap;
use hwlocality::errors::{HybridError, RawHwlocError};
use hwlocality::hwloc_api_version;
use hwlocality::object::attributes::ObjectAttributes;
use hwlocality::object::distance::DistancesKind;
use hwlocality::object::types::ObjectType;
use hwlocality::object::TopologyObject;
use hwlocality::topology::builder::BuildFlags;
use hwlocality::Topology as Hwloc;
use std::collections::HashMap;
use std::path::Path;

/// Reads a topology: of this host, of the XML file with this name (`lstopo FILE.xml` writes one), or what
/// hwloc's synthetic description says (`pack:2 [numa(memory=64GB)] l3:1 core:8 pu:2`; lstopo(1)).
///
/// # Errors
/// A sentence: hwloc can't read it, or there is no core that may be used.
pub fn read(source: Option<&str>) -> Result<Topology, String> {
    let (topology, source) = match source {
        None => {
            // Not only what this process's cgroup admits, but also its affinity (taskset).
            let limited = Hwloc::builder()
                .with_flags(BuildFlags::ASSUME_THIS_SYSTEM | BuildFlags::RESTRICT_CPU_TO_THIS_PROCESS);
            let read = limited.map_err(|why| match why {
                HybridError::Rust(why) => why.to_string(),
                HybridError::Hwloc(why) => sentence(why),
            });
            (read.and_then(|it| it.build().map_err(sentence)), "this host".to_owned())
        }
        Some(path) if Path::new(path).exists() => {
            // libxml finds out what is wrong before, hwloc's own reader afterwards.
            let read = Hwloc::builder().from_xml_file(path).map_err(|why| why.to_string());
            let read = read.and_then(|it| it.build().map_err(sentence));
            (read.map_err(|why| of_file(path, why)), path.to_owned())
        }
        Some(text) if text.contains(':') && !text.contains('/') && !text.ends_with(".xml") => {
            let read = Hwloc::builder().from_synthetic(text).map_err(|e| e.to_string());
            (read.and_then(|it| it.build().map_err(sentence)), format!("synthetic: {text}"))
        }
        Some(path) => return Err(format!("there is no file {path}, and it is no synthetic topology")),
    };
    let topology = topology.map_err(|why| format!("hwloc can't read the topology of {source}: {why}"))?;
    convert(&topology, source)
}

/// Shows an error of hwloc as a sentence.
fn sentence(why: RawHwlocError) -> String {
    match why.errno {
        Some(number) => format!("{} failed: {number}", why.api),
        None => format!("{} failed", why.api),
    }
}

/// The reason why hwloc could not read a file: what the file shows, if that is more than hwloc says.
fn of_file(path: &str, why: String) -> String {
    let text = match std::fs::read(path) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return error.to_string(),
    };
    let has = hwloc_api_version() >> 16;
    match version(&text) {
        None => "it is no topology that lstopo has written as XML".into(),
        Some(theirs) if theirs as usize > has => {
            format!(
                "hwloc {theirs} has written it, and this is hwloc {has}: write it with lstopo of hwloc {has}"
            )
        }
        Some(_) => why,
    }
}

/// The major version of a topology's format, which is hwloc's since its second. `None`: it is no topology.
fn version(xml: &str) -> Option<u32> {
    let (_, rest) = xml.split_once("<topology")?;
    let (attributes, _) = rest.split_once('>')?;
    match attributes.split_once("version=\"") {
        Some((_, rest)) => rest.split(['.', '"']).next()?.parse().ok(),
        None => Some(1),
    }
}

fn convert(from: &Hwloc, source: String) -> Result<Topology, String> {
    let nodes: Vec<_> = from.objects_with_type(ObjectType::NUMANode).collect();
    let caches = Numbered::of(from.objects_with_type(ObjectType::L3Cache));
    let packages = Numbered::of(from.objects_with_type(ObjectType::Package));
    let allowed = from.allowed_cpuset().clone_target();
    let cores = from.objects_with_type(ObjectType::Core).filter_map(|core| {
        let pus: Vec<u32> = numbers(core, &allowed);
        let package = core.first_ancestor_with_type(ObjectType::Package);
        let package = package.and_then(|it| packages.get(it)).unwrap_or(0);
        // Without an L3 cache, what cores share is their socket.
        let cache = core.first_ancestor_with_type(ObjectType::L3Cache).and_then(|it| caches.get(it));
        let cache = cache.unwrap_or(caches.len() + package);
        let node = nearest(core, &nodes)?;
        (!pus.is_empty()).then_some(Core { pus, package, cache, node })
    });
    let cores: Vec<_> = cores.collect();
    if cores.is_empty() {
        return Err(format!("{source} has no cores that may be used"));
    }
    let described = nodes.iter().map(|node| Node {
        number: node.os_index().unwrap_or(node.logical_index()) as u32,
        memory: local_memory(node),
    });
    Ok(Topology { source, cores, nodes: described.collect(), distances: distances(from, &nodes) })
}

/// Objects by their order.
struct Numbered(HashMap<u64, usize>);

impl Numbered {
    fn of<'a>(objects: impl Iterator<Item = &'a TopologyObject>) -> Numbered {
        Numbered(objects.enumerate().map(|(index, it)| (it.global_persistent_index(), index)).collect())
    }

    fn get(&self, object: &TopologyObject) -> Option<usize> {
        self.0.get(&object.global_persistent_index()).copied()
    }

    fn len(&self) -> usize {
        self.0.len()
    }
}

/// The logical processors of a core that may be used.
fn numbers(core: &TopologyObject, allowed: &Bitmap) -> Vec<u32> {
    let set = core.cpuset().map(|set| set.clone_target()).unwrap_or_default();
    set.iter_set().filter(|index| allowed.is_set(*index)).map(|index| usize::from(index) as u32).collect()
}

/// The node of a core: of several (fast memory beside ordinary), the one that has most.
fn nearest(core: &TopologyObject, nodes: &[&TopologyObject]) -> Option<usize> {
    let near = core.nodeset()?;
    let is_near = |node: &TopologyObject| {
        node.os_index()
            .and_then(|it| it.try_into().ok())
            .is_some_and(|it: hwlocality::bitmap::BitmapIndex| near.is_set(it))
    };
    let local = nodes.iter().enumerate().filter(|(_, node)| is_near(node));
    local.max_by_key(|(index, node)| (local_memory(node), usize::MAX - index)).map(|(index, _)| index)
}

fn local_memory(node: &TopologyObject) -> Option<u64> {
    match node.attributes() {
        Some(ObjectAttributes::NUMANode(node)) => node.local_memory().map(Into::into),
        _ => None,
    }
}

/// The latencies between nodes that firmware, XML or description give.
fn distances(from: &Hwloc, nodes: &[&TopologyObject]) -> Option<Vec<Vec<u64>>> {
    let all = from.distances_with_type(None, ObjectType::NUMANode).ok()?;
    let known = all
        .iter()
        .find(|it| it.kind().intersects(DistancesKind::MEANS_LATENCY) && it.num_objects() == nodes.len())?;
    let at =
        |a: &TopologyObject, b: &TopologyObject| known.object_pair_distance((a, b)).map(|(there, _)| there);
    nodes.iter().map(|a| nodes.iter().map(|b| at(a, b)).collect()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_say_whose_format_they_have() {
        assert_eq!(version("<?xml version=\"1.0\"?>\n<topology version=\"3.0\">\n"), Some(3));
        assert_eq!(version("<topology version=\"2\">"), Some(2));
        assert_eq!(version("<topology>"), Some(1));
        assert_eq!(version("<?xml version=\"1.0\"?>\n<other>"), None);
    }
}
