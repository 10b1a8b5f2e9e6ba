//! The options of a cluster with more machines, or fewer.

use crate::description::machines::MAX;
use vshmem_base::error::{error, Error, Result};
use vshmem_hypervisor::launcher::options::{ClusterOptions, MachineOptions};

/// These options with `count` more machines, which are like the last one. Their names go on from its.
pub fn grown(options: &ClusterOptions, count: usize) -> Result<ClusterOptions> {
    let mut grown = options.clone();
    if options.machines.len() + count > MAX {
        return Err(error!(
            "a cluster has at most {MAX} machines, and this would be {}",
            options.machines.len() + count
        )
        .code(2));
    }
    let last = options.machines.last().cloned().ok_or_else(|| Error::new("the cluster has no machine"))?;
    let base = last.name.trim_end_matches(|c: char| c.is_ascii_digit());
    for _ in 0..count {
        // As in a description, capitals make no other name.
        let taken = |name: &str| grown.machines.iter().any(|other| other.name.eq_ignore_ascii_case(name));
        let name = (0..).map(|number| format!("{base}{number}")).find(|name| !taken(name));
        let name = name.expect("there are fewer machines than numbers");
        grown.machines.push(MachineOptions { name, ..last.clone() });
    }
    Ok(grown)
}

/// These options without the machines of these names; if there are none, without the last `count`.
pub fn shrunk(options: &ClusterOptions, names: &[String], count: usize) -> Result<ClusterOptions> {
    let mut shrunk = options.clone();
    for name in names {
        let place = shrunk.machines.iter().position(|machine| machine.name == *name);
        let place = place.ok_or_else(|| {
            let names: Vec<_> = options.machines.iter().map(|machine| machine.name.as_str()).collect();
            error!("the cluster {} has no machine {name}", options.cluster)
                .hint(format!("It has {}.", names.join(", ")))
        })?;
        shrunk.machines.remove(place);
    }
    if names.is_empty() {
        shrunk.machines.truncate(options.machines.len().saturating_sub(count));
    }
    if shrunk.machines.is_empty() {
        return Err(error!("nothing would be left of the cluster {}", options.cluster)
            .hint(format!("End it with: vshmem down -c {}", options.cluster))
            .code(2));
    }
    Ok(shrunk)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::cluster::{Description, MachineGroup};

    fn of(names: &[&str]) -> ClusterOptions {
        let group = |name: &&str| MachineGroup { name: Some((*name).into()), ..MachineGroup::default() };
        let machines = names.iter().map(group).collect();
        Description { machines, ..Description::default() }.resolve().unwrap().1
    }

    fn names(options: &ClusterOptions) -> Vec<&str> {
        options.machines.iter().map(|machine| machine.name.as_str()).collect()
    }

    #[test]
    fn names_go_on() {
        assert_eq!(names(&grown(&of(&["vm0", "vm1"]), 2).unwrap()), ["vm0", "vm1", "vm2", "vm3"]);
        assert_eq!(names(&grown(&of(&["vm0", "vm2"]), 2).unwrap()), ["vm0", "vm2", "vm1", "vm3"]);
        assert_eq!(names(&grown(&of(&["boss"]), 1).unwrap()), ["boss", "boss0"]);
        assert_eq!(names(&grown(&of(&["W0", "w1"]), 2).unwrap()), ["W0", "w1", "w2", "w3"]);
        assert_eq!(grown(&of(&["a"]), MAX).unwrap_err().exit_code(), 2);
    }

    #[test]
    fn the_last_ones_go_or_those_that_are_named() {
        let all = of(&["a", "b", "c"]);
        assert_eq!(names(&shrunk(&all, &[], 2).unwrap()), ["a"]);
        assert_eq!(names(&shrunk(&all, &["b".into()], 1).unwrap()), ["a", "c"]);
        assert!(shrunk(&all, &[], 3).is_err() && shrunk(&all, &["x".into()], 1).is_err());
    }
}
