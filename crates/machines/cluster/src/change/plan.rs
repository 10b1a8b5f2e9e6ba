//! The plan of a cluster's changes: the differences between its options and new ones, with the effort of
//! each. Nothing is changed here.

use crate::host::placing::Move;
use std::fmt::{self, Debug};
use vshmem_devices::want::Want;
use vshmem_guest::settings::uplink::Uplink;
use vshmem_hypervisor::boot::image::Image;
use vshmem_hypervisor::launcher::options::{ClusterOptions, MachineOptions, PoolOptions};
use vshmem_placement::pages::{PageRules, Pages};
use vshmem_placement::plan::Placed;
use vshmem_placement::rules::Rules;

/// The effort of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effort {
    /// Machines run on meanwhile, and others come.
    Live,
    /// A machine of the cluster is ended for good.
    Removal,
    /// A machine is restarted: what runs in it ends.
    Restart,
    /// The cluster has to be ended and started anew.
    Rebuild,
}

/// The step of a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A pool is made for the cluster, or one of the host is used.
    AddPool(PoolOptions),
    /// A machine gets a pool. The machine, the pool.
    Grant(String, String),
    /// A machine loses a pool.
    Revoke(String, String),
    /// A pool is not the cluster's any more.
    DropPool(String),
    /// A pool is backed with memory.
    Reserve(String),
    /// A machine is ended and removed.
    Remove(String),
    /// A machine is made.
    Add(MachineOptions),
    /// A machine has other cores and memory, or memory in other pages.
    Resize(MachineOptions),
    /// A machine has other devices. The machine, and what it asks for.
    Devices(String, Vec<Want>),
    /// Machines are on another network outside, or on none.
    Uplink(Option<Uplink>),
    /// Pages are had by other rules from now on.
    Pages(PageRules),
    /// Have machines that start boot, also where they could thaw.
    Cold(bool),
    /// Machines are placed by other rules from now on.
    Rules(Option<Rules>),
    /// A machine is placed anew, or not at all any more. The machine, and where it runs.
    Place(String, Option<Box<Placed>>),
    /// A machine is started as it is to be: it has died, or was changed since it started.
    Restart(String),
    /// Something that can't be changed in a cluster that there is.
    Other,
}

/// A change, with its effort.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The step.
    pub step: Step,
    /// The effort.
    pub effort: Effort,
    /// The machine that is restarted for it, if one is.
    pub machine: Option<String>,
    /// A description in words.
    pub text: String,
}

impl Change {
    /// Whether the change adds a machine.
    pub fn adds(&self) -> bool {
        matches!(self.step, Step::Add(_))
    }

    /// Whether the change removes a machine.
    pub fn removes(&self) -> bool {
        matches!(self.step, Step::Remove(_))
    }
}

/// A cluster that runs, as a plan needs to know it.
pub trait RunningCluster {
    /// Whether a machine can be given a pool while it runs.
    fn can_grant(&self, machine: &str, pool: &PoolOptions) -> bool;
    /// Whether a machine can lose the pool of this name while it runs.
    fn can_revoke(&self, machine: &str, pool: &str) -> bool;
    /// Whether a machine of the cluster has died.
    fn has_died(&self, machine: &str) -> bool;
    /// Whether a machine runs with other options than it is to have, since a change takes a restart.
    fn is_outdated(&self, machine: &str) -> bool;
    /// Whether a machine can be removed from the cluster.
    fn can_remove(&self, machine: &str) -> bool;
    /// The new placement of the machine, if it is to have one.
    fn moves(&self, machine: &str) -> Option<&Move>;
}

impl fmt::Display for Effort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Effort::Live => "live",
            Effort::Removal => "removal",
            Effort::Restart => "restart",
            Effort::Rebuild => "rebuild",
        })
    }
}

/// All changes, in the order in which they are made.
pub fn plan(old: &ClusterOptions, new: &ClusterOptions, running: &dyn RunningCluster) -> Vec<Change> {
    let mut all = settings(old, new);
    pools(old, new, &mut all);
    machines(old, new, running, &mut all);
    // Pools that others get come first, and go when nobody has them any more.
    all.sort_by_key(|change| match change.step {
        Step::Other | Step::Rules(_) | Step::Pages(_) | Step::Cold(_) | Step::Uplink(_) => 0,
        Step::AddPool(_) | Step::Reserve(_) => 1,
        Step::Remove(_) => 2,
        Step::Revoke(..) => 3,
        Step::DropPool(_) => 6,
        Step::Add(_) => 5,
        Step::Grant(..) | Step::Resize(_) | Step::Devices(..) | Step::Place(..) | Step::Restart(_) => 4,
    });
    all
}

fn change(step: Step, effort: Effort, text: String) -> Change {
    Change { step, effort, machine: None, text }
}

/// The differences in settings of the whole cluster, which can't be changed.
fn settings(old: &ClusterOptions, new: &ClusterOptions) -> Vec<Change> {
    let mut all = Vec::new();
    let mut compare = |what: &str, old: &dyn Debug, new: &dyn Debug| {
        let (old, new) = (format!("{old:?}"), format!("{new:?}"));
        if old != new {
            all.push(change(Step::Other, Effort::Rebuild, format!("{what}: {old} becomes {new}")));
        }
    };
    compare("shares", &old.shares, &new.shares);
    compare("spare-pools", &old.ports.spare, &new.ports.spare);
    compare("largest-pool", &old.ports.largest, &new.ports.largest);
    compare("network", &old.network, &new.network);
    compare("doorbell", &old.doorbell, &new.doorbell);
    compare("driver", &old.driver, &new.driver);
    compare("via", &old.service, &new.service);
    compare("accel", &old.accel, &new.accel);
    compare("kernel", &old.kernel, &new.kernel);
    compare("root", &old.root, &new.root);
    if old.placement != new.placement {
        let told = |rules: Option<Rules>| rules.map_or("none".into(), |rules| rules.to_string());
        let what = format!("placement: {} instead of {}", told(new.placement), told(old.placement));
        all.push(change(Step::Rules(new.placement), Effort::Live, what));
    }
    if old.pages != new.pages {
        let what = format!("pages: {} instead of {}, of what starts from now on", new.pages, old.pages);
        all.push(change(Step::Pages(new.pages), Effort::Live, what));
    }
    if old.cold != new.cold {
        let what = match new.cold {
            true => "machines boot from now on, also where they could thaw from a template",
            false => "machines thaw from templates from now on, where they can",
        };
        all.push(change(Step::Cold(new.cold), Effort::Live, what.into()));
    }
    all
}

fn pools(old: &ClusterOptions, new: &ClusterOptions, all: &mut Vec<Change>) {
    for pool in &new.pools {
        let name = &pool.name;
        let Some(had) = old.pools.iter().find(|had| had.name == *name) else {
            let what = match &pool.host {
                Some(host) => format!("use the pool {host} as {name}"),
                None => format!("make the pool {name}"),
            };
            all.push(change(Step::AddPool(pool.clone()), Effort::Live, what));
            continue;
        };
        if pool.reserve && !had.reserve {
            let what = format!("back the pool {name} with memory");
            all.push(change(Step::Reserve(name.clone()), Effort::Live, what));
        }
        let rest = |pool: &PoolOptions| PoolOptions { reserve: false, ..pool.clone() };
        if rest(pool) != rest(had) || had.reserve && !pool.reserve {
            let what = format!("the pool {name} becomes another one, without what is in it");
            all.push(change(Step::Other, Effort::Rebuild, what));
        }
    }
    for had in old.pools.iter().filter(|had| !new.pools.iter().any(|pool| pool.name == had.name)) {
        let name = had.name.clone();
        let what = match had.host {
            Some(_) => format!("the pool {name} is not used any more"),
            None => format!("remove the pool {name}"),
        };
        all.push(change(Step::DropPool(name), Effort::Live, what));
    }
}

fn machines(old: &ClusterOptions, new: &ClusterOptions, running: &dyn RunningCluster, all: &mut Vec<Change>) {
    for had in old.machines.iter().filter(|had| !new.machines.iter().any(|it| it.name == had.name)) {
        let name = had.name.clone();
        let (effort, what) = match running.can_remove(&name) {
            true => (Effort::Removal, format!("end and remove {name}")),
            false => {
                (Effort::Rebuild, format!("remove {name}, through which the network of the others goes"))
            }
        };
        all.push(change(Step::Remove(name), effort, what));
    }
    for machine in &new.machines {
        let name = &machine.name;
        let Some(had) = old.machines.iter().find(|had| had.name == *name) else {
            all.push(change(Step::Add(machine.clone()), Effort::Live, format!("add {}", described(machine))));
            continue;
        };
        let died = running.has_died(name);
        if died {
            all.push(change(
                Step::Restart(name.clone()),
                Effort::Live,
                format!("start {name}, which has died"),
            ));
        }
        let restarts = |step, what| Change {
            machine: Some(name.clone()),
            ..change(step, if died { Effort::Live } else { Effort::Restart }, what)
        };
        if !died && running.is_outdated(name) {
            let what = format!("restart {name}, which was changed since it started");
            all.push(restarts(Step::Restart(name.clone()), what));
        }
        if (had.cpus, had.memory, had.pages) != (machine.cpus, machine.memory, machine.pages) {
            all.push(restarts(Step::Resize(machine.clone()), resized(had, machine)));
        }
        if had.devices != machine.devices {
            let (new, old) = (device_list(&machine.devices), device_list(&had.devices));
            let step = Step::Devices(name.clone(), machine.devices.clone());
            all.push(restarts(step, format!("{name}: devices {new} instead of {old}")));
        }
        if old.uplink != new.uplink {
            let told = |uplink: &Option<Uplink>| uplink.as_ref().map_or("none".into(), Uplink::to_string);
            let what =
                format!("{name}: network outside {} instead of {}", told(&new.uplink), told(&old.uplink));
            all.push(restarts(Step::Uplink(new.uplink.clone()), what));
        }
        if had.image != machine.image {
            let what = format!("{name}: it boots {} instead of {}", machine.image, had.image);
            all.push(change(Step::Other, Effort::Rebuild, what));
        }
        if let Some(moved) = running.moves(name) {
            let step = Step::Place(name.clone(), moved.placed.clone().map(Box::new));
            all.push(match !died && moved.live {
                true => change(step, Effort::Live, moved.text.clone()),
                false => restarts(step, moved.text.clone()),
            });
        }
        for pool in had.pools.iter().filter(|pool| !machine.pools.contains(pool)) {
            let (step, what) =
                (Step::Revoke(name.clone(), pool.clone()), format!("revoke {pool} from {name}"));
            all.push(match !died && running.can_revoke(name, pool) {
                true => change(step, Effort::Live, what),
                false => restarts(step, what),
            });
        }
        for pool in machine.pools.iter().filter(|pool| !had.pools.contains(pool)) {
            let (step, what) = (Step::Grant(name.clone(), pool.clone()), format!("grant {pool} to {name}"));
            let wanted = new.pools.iter().find(|it| it.name == *pool);
            all.push(match !died && wanted.is_some_and(|wanted| running.can_grant(name, wanted)) {
                true => change(step, Effort::Live, what),
                false => restarts(step, what),
            });
        }
    }
}

/// The differences between a machine's options and new ones, in words.
fn resized(had: &MachineOptions, machine: &MachineOptions) -> String {
    let mut parts = Vec::new();
    if had.cpus != machine.cpus {
        let plural = if machine.cpus == 1 { "" } else { "s" };
        parts.push(format!("{} core{plural} instead of {}", machine.cpus, had.cpus));
    }
    if had.memory != machine.memory {
        let (new, old) = (vshmem_base::size::show(machine.memory), vshmem_base::size::show(had.memory));
        parts.push(format!("{new} of memory instead of {old}"));
    }
    if had.pages != machine.pages {
        let told = |pages: Option<Pages>| pages.map_or("any pages".into(), |pages| pages.to_string());
        parts.push(format!("{} instead of {}", told(machine.pages), told(had.pages)));
    }
    format!("{}: {}", machine.name, parts.join(", "))
}

/// Devices in words.
fn device_list(devices: &[Want]) -> String {
    match devices.is_empty() {
        true => "none".into(),
        false => devices.iter().map(Want::to_string).collect::<Vec<_>>().join(", "),
    }
}

/// A machine in words.
pub fn described(machine: &MachineOptions) -> String {
    let MachineOptions { name, cpus, memory, pages, devices, image, pools } = machine;
    let plural = if *cpus == 1 { "" } else { "s" };
    let pages = pages.map_or(String::new(), |pages| format!(" in {pages}"));
    let pools = match pools.is_empty() {
        true => "no pools".into(),
        false => format!("pools {}", pools.join(", ")),
    };
    let devices = match devices.is_empty() {
        true => String::new(),
        false => format!(", devices {}", device_list(devices)),
    };
    let boots = match image {
        Image::Host => String::new(),
        other => format!(", it boots {other}"),
    };
    let memory = vshmem_base::size::show(*memory);
    format!("{name}: {cpus} core{plural}, {memory} of memory{pages}, {pools}{devices}{boots}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::testing::resolved;

    /// A machine that can't run on without a placement.
    static MOVE: Move = Move { machine: String::new(), placed: None, live: false, text: String::new() };

    /// Machines that can lose all pools but `default`, and be granted all but large ones. `dead` has died.
    struct Usual;

    impl RunningCluster for Usual {
        fn can_grant(&self, _: &str, pool: &PoolOptions) -> bool {
            pool.size <= 64 << 20
        }
        fn is_outdated(&self, machine: &str) -> bool {
            machine == "outdated"
        }
        fn can_revoke(&self, _: &str, pool: &str) -> bool {
            pool != "default"
        }
        fn has_died(&self, machine: &str) -> bool {
            machine == "dead"
        }
        fn can_remove(&self, machine: &str) -> bool {
            machine != "vm0"
        }
        fn moves(&self, machine: &str) -> Option<&Move> {
            (machine == "moves").then_some(&MOVE)
        }
    }

    fn planned(old: &str, new: &str) -> Vec<String> {
        let all = plan(&resolved(old).unwrap(), &resolved(new).unwrap(), &Usual);
        all.iter().map(|change| format!("{} {}", change.effort, change.text)).collect()
    }

    #[test]
    fn nothing_differs_from_itself() {
        let text = "[[machines]]\ncount = 3\n[pools.a]\nsize = '4M'";
        assert!(planned(text, text).is_empty());
    }

    #[test]
    fn each_difference_is_a_change() {
        let two = "[[machines]]\ncount = 2\n";
        let cases = [
            (two, "", vec![]),
            ("", "[[machines]]\ncount = 3", vec!["live add vm2: 1 core, 512M of memory, pools default"]),
            ("", "[[machines]]", vec!["removal end and remove vm1"]),
            (
                "",
                "[[machines]]\nname = 'vm1'",
                vec!["rebuild remove vm0, through which the network of the others goes"],
            ),
            (
                two,
                "[[machines]]\ncount = 2\ncpus = 2",
                vec!["restart vm0: 2 cores instead of 1", "restart vm1: 2 cores instead of 1"],
            ),
            (
                "[[machines]]\nname = 'a'",
                "network = { bridge = 'br0', address = '10.0.0.1/24' }\n[[machines]]\nname = 'a'",
                vec!["restart a: network outside bridge br0, addresses from 10.0.0.1/24 instead of none"],
            ),
            (
                "[[machines]]\nname = 'a'\ndevices = ['01:00.0']",
                "[[machines]]\nname = 'a'\n[[machines]]\nname = 'b'\ndevices = ['2 x nvme', 'vf of 02:00.0']",
                vec![
                    "restart a: devices none instead of 0000:01:00.0",
                    "live add b: 1 core, 512M of memory, pools default, devices 2 x nvme, vf of 0000:02:00.0",
                ],
            ),
            (
                "[[machines]]\nname = 'a'\nimage = 'host'",
                "[[machines]]\nname = 'a'\nimage = 'debian.qcow2'",
                vec!["rebuild a: it boots /debian.qcow2 instead of this host's root"],
            ),
            (
                two,
                "[[machines]]\ncount = 2\n[[machines]]\nname = 'a'\nkernel = 'k'\ninitramfs = 'i'",
                vec!["live add a: 1 core, 512M of memory, pools default, it boots /k"],
            ),
            (
                "",
                "[pages]\nmachines = '2M'\nprealloc = true",
                vec![
                    "live pages: preferred, taken ahead of time instead of preferred, of what starts from now on",
                    "restart vm0: pages of 2M instead of any pages",
                    "restart vm1: pages of 2M instead of any pages",
                ],
            ),
            (
                "[[machines]]\npages = '2M'",
                "[[machines]]\npages = '2M'\ncount = 2",
                vec!["live add vm1: 1 core, 512M of memory in pages of 2M, pools default"],
            ),
            (
                "",
                "[pools.default]\nnode = 0",
                vec!["rebuild the pool default becomes another one, without what is in it"],
            ),
            ("", "network = false", vec!["rebuild network: true becomes false"]),
            (
                "",
                "cold = true",
                vec!["live machines boot from now on, also where they could thaw from a template"],
            ),
            ("", "driver = 'none'", vec!["rebuild driver: Auto becomes None"]),
            ("", "[pools.default]\nreserve = true", vec!["live back the pool default with memory"]),
            (
                "[pools.default]\nreserve = true",
                "",
                vec!["rebuild the pool default becomes another one, without what is in it"],
            ),
            (
                "",
                "[pools.default]\nsize = '4M'",
                vec!["rebuild the pool default becomes another one, without what is in it"],
            ),
            ("", "[pools.default]\nmachines = ['vm0']", vec!["restart revoke default from vm1"]),
            (
                "",
                "[pools.a]\nsize = '4M'",
                vec!["live make the pool a", "live grant a to vm0", "live grant a to vm1"],
            ),
            ("[pools.a]", "[pools.a]\nmachines = ['vm1']", vec!["live revoke a from vm0"]),
            ("[pools.a]\nmachines = ['vm1']", "", vec!["live revoke a from vm1", "live remove the pool a"]),
            ("[pools.a]\nmachines = ['vm1']", "[pools.a]", vec!["restart grant a to vm0"]),
            ("", "[pools.w]\nhost = '/x'\nmachines = []", vec!["live use the pool /x as w"]),
            (
                "[placement]",
                "[placement]\ncores = 'strict'\n[[machines]]\ncount = 3",
                vec![
                    "live placement: numa-first, cores strict, memory preferred instead of numa-first, cores \
                     preferred, memory preferred",
                    "live add vm2: 1 core, 512M of memory, pools default",
                ],
            ),
            ("[[machines]]\nname = 'moves'", "[[machines]]\nname = 'moves'", vec!["restart "]),
            (
                "[[machines]]\nname = 'dead'",
                "[[machines]]\nname = 'dead'",
                vec!["live start dead, which has died"],
            ),
            (
                "[[machines]]\nname = 'outdated'",
                "[[machines]]\nname = 'outdated'",
                vec!["restart restart outdated, which was changed since it started"],
            ),
        ];
        for (old, new, said) in cases {
            assert_eq!(planned(old, new), said, "from {old:?} to {new:?}");
        }
    }

    #[test]
    fn a_dead_machine_is_changed_as_it_starts() {
        let new = "[[machines]]\nname = 'dead'\nmemory = '1G'\n[pools.default]\nmachines = []";
        let all = planned("[[machines]]\nname = 'dead'", new);
        assert!(all.len() == 3 && all.iter().all(|change| change.starts_with("live ")), "{all:?}");
    }

    /// Every option is compared: a new one that is forgotten here can't be compiled.
    #[test]
    fn no_option_is_forgotten() {
        let ClusterOptions {
            cluster: _,
            machines,
            pools,
            shares: _,
            ports: _,
            placement: _,
            pages: _,
            network: _,
            doorbell: _,
            driver: _,
            service: _,
            accel: _,
            kernel: _,
            root: _,
            cold: _,
            uplink: _,
        } = resolved("").unwrap();
        let MachineOptions { name: _, cpus: _, memory: _, pages: _, devices: _, image: _, pools: _ } =
            &machines[0];
        let PoolOptions { name: _, host: _, size: _, align: _, transport: _, reserve: _, pages: _, node: _ } =
            &pools[0];
    }
}
