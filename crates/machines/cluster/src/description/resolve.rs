//! The resolution of a description to a launcher and the options of a cluster, with every default.

use super::cluster::{Description, Size};
use super::fault::Fault;
use super::values::AUTO;
use super::{devices, machines, pools, via};
use vshmem_base::directories::check_name;
use vshmem_base::size;
use vshmem_hypervisor::boot::driver::Choice;
use vshmem_hypervisor::launcher::options::{ClusterOptions, MachineOptions, Refusal, RefusedOption};
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_hypervisor::state::ports::{Ports, MAX};
use vshmem_placement::pages::PageRules;
use vshmem_placement::rules::Rules;

/// A cluster's name, if none is given.
pub const DEFAULT_NAME: &str = "default";
/// Threads that take memory ahead of time. Hypervisors have no more, either.
pub const MAX_THREADS: u32 = 16;

impl Description {
    /// The launcher and the options that are meant.
    pub fn resolve(&self) -> Result<(&'static dyn Launcher, ClusterOptions), Fault> {
        let launcher = via::launcher(self)?;
        let mut machines = machines::machines(self)?;
        devices::check(self, launcher)?;
        let accel = self.accelerator(launcher)?;
        let pools = pools::pools(self, (launcher, accel.as_deref()), &mut machines)?;
        let cluster = self.name.clone().unwrap_or_else(|| DEFAULT_NAME.into());
        check_name(&cluster).map_err(|error| Fault::because(&["name"], error))?;
        let machines: Vec<MachineOptions> = machines.into_iter().map(|(machine, _)| machine).collect();
        let most = machines.iter().map(|machine| machine.pools.len()).max().unwrap_or(0);
        let uplink = self.uplink(launcher, machines.len())?;
        let private = self.network.as_ref().and_then(|network| network.private);
        let options = ClusterOptions {
            cluster,
            machines,
            pools,
            shares: self.shares.clone(),
            ports: self.ports(most, launcher.largest_pool(accel.as_deref()))?,
            placement: self.placement(launcher)?,
            pages: self.pages(launcher)?,
            network: private.unwrap_or(launcher.facts().network),
            uplink,
            doorbell: self.doorbell,
            driver: match &self.driver {
                None => Choice::Auto,
                Some(file) if file.as_os_str() == "none" => Choice::None,
                Some(file) => Choice::File(file.clone()),
            },
            service: via::uri(self, launcher)?,
            accel,
            kernel: self.kernel.clone(),
            root: self.root.unwrap_or_default(),
            cold: self.cold.unwrap_or(false),
        };
        if let (Some(true), Some(transport)) = (self.doorbell, &options.pools[0].transport) {
            return Err(Fault::new(
                &["doorbell"],
                format!("by {transport} machines can't wake each other's waiters (doorbells)"),
            ));
        }
        launcher.check(&options).map_err(|refusal| self.fault(refusal))?;
        Ok((launcher, options))
    }

    /// The mistake that a launcher has found in the options, where it stands here.
    fn fault(&self, refusal: Refusal) -> Fault {
        let group;
        let at = match &refusal.place {
            RefusedOption::Other => vec![],
            RefusedOption::Network => vec!["network", "private"],
            RefusedOption::Uplink => vec!["network", self.uplink_key()],
            RefusedOption::Pool(name) => vec!["pools", name],
            RefusedOption::Pages(index) => match machines::group_of(self, *index) {
                Some(place) if self.machines[place].pages.is_some() => {
                    group = place.to_string();
                    vec!["machines", &group, "pages"]
                }
                _ => vec!["pages", "machines"],
            },
        };
        Fault::because(&at, refusal.error)
    }

    fn accelerator(&self, launcher: &dyn Launcher) -> Result<Option<String>, Fault> {
        let Some(name) = self.accel.as_ref().filter(|name| *name != AUTO) else {
            return Ok(None);
        };
        let facts = launcher.facts();
        match facts.accelerators.iter().any(|(known, _)| known == name) {
            true => Ok(Some(name.clone())),
            false => {
                let what = format!("{} does not run machines by {name}", facts.name);
                Err(Fault::new(&["accel"], what))
            }
        }
    }

    fn placement(&self, launcher: &dyn Launcher) -> Result<Option<Rules>, Fault> {
        let Some(placement) = &self.placement else {
            return Ok(None);
        };
        let facts = launcher.facts();
        if !facts.can_pin {
            let what = format!("{} places its machines itself", facts.name);
            return Err(Fault::new(&["placement"], what));
        }
        if placement.smt && !placement.rules().policy.pins_alone() {
            let what =
                "SMT siblings are given to virtual cores that are pinned: policies pinned and numa-first";
            return Err(Fault::new(&["placement", "smt"], what));
        }
        Ok(Some(placement.rules()))
    }

    fn pages(&self, launcher: &dyn Launcher) -> Result<PageRules, Fault> {
        let facts = launcher.facts();
        let group = self.machines.iter().position(|group| group.pages.is_some());
        if !facts.can_pin && (self.pages.is_some() || group.is_some()) {
            let what = format!("{} gives machines and pools their memory itself", facts.name);
            return Err(match group {
                Some(place) => Fault::new(&["machines", &place.to_string(), "pages"], what),
                None => Fault::new(&["pages"], what),
            });
        }
        let rules = self.pages.as_ref().map(|pages| pages.rules()).unwrap_or_default();
        if rules.threads > MAX_THREADS {
            let what = format!("memory is taken ahead by {MAX_THREADS} threads at the most");
            return Err(Fault::new(&["pages", "prealloc-threads"], what));
        }
        Ok(rules)
    }

    /// Ports for pools, besides this many that a machine has from the start; it can address one of this size.
    fn ports(&self, pools: usize, reach: Option<u64>) -> Result<Ports, Fault> {
        let spare = self.spare_pools.unwrap_or(Ports::DEFAULT.spare);
        let largest = self.largest_pool.map_or(Ports::DEFAULT.largest, |Size(bytes)| bytes);
        if !largest.is_power_of_two() || largest < vshmem_pool::MIN_POOL {
            let what = "room for a pool is a power of two, 1M or more: 256M, 1G, 4G";
            return Err(Fault::new(&["largest-pool"], what));
        }
        if let Some(most) = reach.filter(|most| spare > 0 && largest > *most).map(size::show) {
            let what = format!("machines can address a pool of {most} at the most");
            return Err(Fault::new(&["largest-pool"], what));
        }
        let ports = spare as usize + pools;
        if ports > MAX as usize {
            let what = format!("a machine has room for {MAX} pools at the most, and this would be {ports}");
            return Err(Fault::new(&["spare-pools"], what));
        }
        Ok(Ports { spare, largest })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::description::testing::resolved;
    use vshmem_hypervisor::launcher::table::launchers;
    use vshmem_placement::pages::{Pages, PoolNodes};

    #[test]
    fn an_empty_file_is_vshmem_up() {
        let options = resolved("").unwrap();
        assert_eq!((options.cluster.as_str(), options.machines.len()), ("default", 2));
        assert_eq!(options.machines[1].pools, ["default"]);
        let pool = &options.pools[0];
        assert_eq!((pool.size, &pool.transport, &pool.host), (vshmem_pool::DEFAULT_POOL, &None, &None));
        assert!(options.network && options.doorbell.is_none() && options.accel.is_none());
        assert_eq!(Description::default().resolve().unwrap().1, options);
    }

    #[test]
    fn a_placement_has_defaults() {
        assert_eq!(resolved("").unwrap().placement, None);
        assert_eq!(resolved("[placement]").unwrap().placement, Some(Rules::default()));
        let text = "[placement]\npolicy = 'range-pinned'\ncores = 'strict'\nmemory = 'interleave'\nreserve-cores = 2";
        let rules = resolved(text).unwrap().placement.unwrap();
        assert_eq!(
            rules.to_string(),
            "range-pinned, cores strict, memory interleaved, 2 of each node's cores reserved"
        );
    }

    #[test]
    fn machines_and_pools_have_the_pages_of_all_or_their_own() {
        let text = "
            [pages]
            machines = '2M'
            pools = 'transparent'
            insist = 'strict'
            prealloc-threads = 3
            [[machines]]
            [[machines]]
            pages = 'small'
            [pools.a]
            pages = '2M'
            node = 1
            [pools.b]
            host = '/x'";
        let options = resolved(text).unwrap();
        let machines: Vec<_> = options.machines.iter().map(|machine| machine.pages).collect();
        assert_eq!(machines, [Some(Pages::TwoMib), Some(Pages::Small)]);
        let pools: Vec<_> = options.pools.iter().map(|pool| (pool.pages, pool.node)).collect();
        let own = (Some(Pages::Transparent), None);
        assert_eq!(pools, [own, (Some(Pages::TwoMib), Some(PoolNodes::Node(1))), (None, None)]);
        assert_eq!(options.pages.to_string(), "strict, by 3 threads");
        assert_eq!(resolved("").unwrap().pages, PageRules::default());
    }

    #[test]
    fn pools_go_to_their_machines() {
        let text = "
            [[machines]]
            name = 'boss'
            [[machines]]
            name = 'w'
            count = 2
            [pools.default]
            machines = ['boss']
            [pools.a]
            machines = ['w', 'w1']
            [pools.b]
            host = '/x'
            machines = ['w1', 'boss']";
        let options = resolved(text).unwrap();
        let pools: Vec<_> = options.machines.iter().map(|machine| machine.pools.join(" ")).collect();
        assert_eq!(pools, ["default b", "a", "a b"]);
    }

    #[test]
    fn each_value_is_checked_where_it_is() {
        let cases = [
            ("hypervisor = 'x'", "1:14: there is no hypervisor x"),
            ("accel = 'x'", "1:9: "),
            ("name = 'a b'", "1:8: "),
            ("largest-pool = 5", "1:16: room for a pool"),
            ("largest-pool = '4194304T'", "1:16: machines can address a pool of"),
            ("spare-pools = 20", "1:15: a machine has room for 20"),
            ("[pools.a]\nsize = '3M'", "2:8: a pool's size"),
            ("[pools.a]\nsize = '4194304T'", "2:8: the pool a would have 4194304T, and"),
            ("[pools.a]\nalign = '1K'", "2:9: segments"),
            ("[pools.a]\ntransport = 'x'", "2:13: machines that"),
            ("name = '-x'", "1:8: \"-x\" can't be a cluster's name"),
            ("[pools.'a b']", "1:1: "),
            ("[pools.'..']", "1:1: \"..\" can't be the name of a machine's pool"),
            ("[pools.a]\nhost = 'w'\nsize = '1M'", "3:8: the pool has its size"),
            ("[pools.default]\nhost = 'w'", "2:8: the pool \"default\" is"),
            ("[pools.a]\nmachines = ['vm0', 'vm7']", "2:20: there is no machine"),
            ("[placement]\npolicy = 'best'", "2:10: unknown variant `best`, expected one of `unpinned`"),
            ("[placement]\ncore = 'strict'", "2:1: unknown field `core`"),
            ("[placement]\ncores = 'interleave'", "2:9: unknown variant `interleave`"),
            ("[placement]\nreserve-cores = -1", "2:17: invalid value"),
            ("[placement]\npolicy = 'unpinned'\nsmt = true", "3:7: SMT siblings"),
            ("[[machines]]\ninitramfs = 'i'", "2:13: it belongs to a kernel"),
            ("[[machines]]\nimage = 'a'\nparameters = 'ro'", "3:14: it belongs to a kernel"),
            ("[[machines]]\nimage = 'host'\nkernel = 'k'", "3:10: a kernel of their own takes"),
            ("[[machines]]\nmemory = '1M'", "2:10: a machine needs"),
            ("[[machines]]\nmemory = '513M'\npages = '2M'", "2:10: 513M is no whole number of pages of 2M"),
            ("[[machines]]\npages = '1G'", "2:9: 512M is no whole number of pages of 1G"),
            ("[pages]\nmachines = '4K'", "2:12: unknown variant `4K`, expected one of `small`"),
            ("[pages]\nprealloc-threads = 17", "2:20: memory is taken ahead by 16"),
            ("[pages]\npools = '2M'\n[pools.default]\nsize = '1M'", "4:8: the pool can't be in pages of 2M"),
            ("[pools.a]\npages = '1G'\ntransport = 'dax'", "2:9: the pool can't be in pages of 1G"),
            ("[pools.a]\nnode = 'both'", "2:8: invalid value"),
            ("[pools.a]\nhost = 'w'\npages = '2M'", "3:9: the pool has its pages"),
            ("[[machines]]\n[[machines]]\ncpus = 256", "3:8: a machine has 1 to 255"),
        ];
        for (text, said) in cases {
            let why = resolved(text).unwrap_err();
            assert!(why.starts_with(&format!("c:{said}")), "{text}: {why}");
        }
        let other = launchers().into_iter().find(|launcher| !launcher.facts().can_pin).unwrap().facts().name;
        let why = resolved(&format!("hypervisor = '{other}'\n[placement]")).unwrap_err();
        assert!(why.starts_with(&format!("c:2:1: {other} places its machines itself")), "{why}");
        let why = resolved(&format!("hypervisor = '{other}'\n[pages]\nmachines = '2M'")).unwrap_err();
        assert!(why.starts_with(&format!("c:2:1: {other} gives machines and pools")), "{why}");
    }
}
