//! Kills at every step: the next command puts back what was there, and nobody else is harmed.

use super::fake::{at, Fake, Kernel, Killed};
use crate::choose::{Assigned, Request};
use crate::hold::Devices;
use crate::ledger::{Holder, Ledger, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::panic::{catch_unwind, AssertUnwindSafe};
use vshmem_base::error::Result;

fn holder(cluster: &str) -> Holder {
    Holder { cluster: cluster.into(), machine: "vm0".into() }
}

fn request(cluster: &str, wants: &[&str]) -> Request {
    Request { holder: holder(cluster), wants: wants.iter().map(|want| want.parse().unwrap()).collect() }
}

/// Runs a program that may be killed; `None`: it was.
fn run<T>(kernel: &Kernel, work: impl FnOnce(&mut Devices<'_>) -> Result<T>) -> Option<Result<T>> {
    let outcome = catch_unwind(AssertUnwindSafe(|| work(&mut Devices::open(kernel, kernel).unwrap())));
    match outcome {
        Ok(done) => Some(done),
        Err(why) if why.is::<Killed>() => None,
        Err(why) => std::panic::resume_unwind(why),
    }
}

fn take(kernel: &Kernel, requests: &[Request]) -> Option<Result<Vec<Vec<Assigned>>>> {
    run(kernel, |devices| {
        let got = devices.claim(requests, None)?;
        let whose: Vec<_> = requests.iter().map(|it| it.holder.clone()).collect();
        devices.bind(&|held| whose.contains(&held.holder))?;
        Ok(got)
    })
}

fn release(kernel: &Kernel, cluster: &str) -> Option<Result<()>> {
    run(kernel, |devices| devices.release(&|held| held.holder == holder(cluster)))
}

fn repair(kernel: &Kernel, alive: &[&str]) -> Result<()> {
    kernel.fuse.set(None);
    let lives = |who: &Holder| alive.iter().any(|cluster| *who == holder(cluster));
    run(kernel, |devices| devices.repair(&lives)).unwrap()
}

fn addresses(got: &[Assigned]) -> Vec<String> {
    got.iter().map(|it| it.address.to_string()).collect()
}

/// One of each sort: a virtual function, one with a count, and one that takes another one along.
const WANTS: [&str; 3] = ["2 x vf of 01:00.0", "2 x nvme", "04:00.0"];

#[test]
fn what_is_taken_is_bound_and_what_is_released_is_as_before() {
    let kernel = Kernel::usual();
    let before = kernel.functions.borrow().clone();
    let got = take(&kernel, &[request("a", &WANTS)]).unwrap().unwrap();
    let chosen = ["0000:01:10.0", "0000:01:10.1", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"];
    // Those of the same node come first.
    assert_eq!(addresses(&got[0])[..2], chosen[..2]);
    assert_eq!(addresses(&got[0]).len(), 5);
    for address in addresses(&got[0]) {
        assert_eq!(kernel.driver(&address).as_deref(), Some("vfio-pci"), "{address}");
    }
    assert_eq!(kernel.driver("04:00.1").as_deref(), Some("vfio-pci"), "it is in the same group");
    assert_eq!(kernel.driver("01:00.0").as_deref(), Some("nvme"), "its virtual functions need it");
    assert!(kernel.functions.borrow()[&at("01:00.0")].autoprobe);
    // The same once more changes nothing.
    assert_eq!(take(&kernel, &[request("a", &WANTS)]).unwrap().unwrap(), got);
    release(&kernel, "a").unwrap().unwrap();
    assert_eq!(*kernel.functions.borrow(), before);
    assert_eq!(*kernel.stored.borrow(), None);
}

#[test]
fn a_kill_at_each_step_is_repaired() {
    let initial = Kernel::usual().functions.into_inner();
    for fuse in 0.. {
        let kernel = Kernel::usual();
        kernel.fuse.set(Some(fuse));
        let killed = take(&kernel, &[request("a", &WANTS)]).is_none();
        // The repair is killed, too, at each step.
        for second in 0.. {
            let again = Kernel {
                functions: kernel.functions.clone(),
                stored: kernel.stored.clone(),
                ..Kernel::default()
            };
            again.loaded.set(kernel.loaded.get());
            again.fuse.set(Some(second));
            let done = run(&again, |devices| devices.repair(&|_| false)).is_some();
            repair(&again, &[]).unwrap();
            assert_eq!(*again.functions.borrow(), initial, "after {fuse} steps, and {second} of the repair");
            assert_eq!(*again.stored.borrow(), None);
            if done {
                break;
            }
        }
        if !killed {
            assert!(fuse > 20, "there are more steps than {fuse}");
            break;
        }
    }
}

#[test]
fn a_kill_as_it_is_released_is_repaired_and_others_keep_theirs() {
    for fuse in 0.. {
        let kernel = Kernel::usual();
        take(&kernel, &[request("b", &["vf of 01:00.0", "03:00.0"])]).unwrap().unwrap();
        let with_b = kernel.functions.borrow().clone();
        take(&kernel, &[request("a", &["vf of 01:00.0", "02:00.0", "04:00.0"])]).unwrap().unwrap();
        kernel.fuse.set(Some(fuse));
        let killed = release(&kernel, "a").is_none();
        repair(&kernel, &["b"]).unwrap();
        assert_eq!(*kernel.functions.borrow(), with_b, "after {fuse} steps");
        if !killed {
            break;
        }
    }
}

#[test]
fn what_can_not_be_bound_leaves_all_as_it_was() {
    let kernel = Kernel::usual();
    let before = kernel.functions.borrow().clone();
    kernel.refused.borrow_mut().insert(at("04:00.1"));
    let why = take(&kernel, &[request("a", &["02:00.0", "04:00.0"])]).unwrap().unwrap_err();
    assert!(why.to_string().contains("04:00.1 to vfio-pci: the driver does not take it"), "{why}");
    assert_eq!(*kernel.functions.borrow(), before, "drivers are put back at once");
    release(&kernel, "a").unwrap().unwrap();
    assert_eq!(*kernel.stored.borrow(), None);
}

#[test]
fn of_two_that_want_the_same_one_gets_it() {
    let kernel = Kernel::usual();
    take(&kernel, &[request("a", &["02:00.0"])]).unwrap().unwrap();
    let why = take(&kernel, &[request("b", &["03:00.0", "02:00.0"])]).unwrap().unwrap_err().to_string();
    assert!(why.contains("vm0 does not get its devices: 0000:02:00.0 can't be had"), "{why}");
    assert!(why.contains("held by vm0 of the cluster a"), "{why}");
    // It got nothing, so another one can have what it asked for.
    assert_eq!(addresses(&take(&kernel, &[request("c", &["nvme"])]).unwrap().unwrap()[0]), ["0000:01:00.0"]);
    let why = take(&kernel, &[request("b", &["2 x nvme"])]).unwrap().unwrap_err().to_string();
    assert!(why.contains("1 of 2 nvme can be had"), "{why}");
    let both = [request("d", &["nvme"]), Request { holder: holder("e"), ..request("e", &["03:00.0"]) }];
    let why = take(&kernel, &both).unwrap().unwrap_err().to_string();
    assert!(why.contains("nvme can't be had"), "one asks for this very function: {why}");
    let why = take(&kernel, &[request("d", &["vf of 01:00.0"])]).unwrap().unwrap_err().to_string();
    assert!(why.contains("given away as a whole"), "{why}");
}

#[test]
fn machines_can_exchange_what_they_have() {
    let kernel = Kernel::usual();
    let before = kernel.functions.borrow().clone();
    let first = [request("a", &["02:00.0", "04:00.0"]), request("b", &["03:00.0"])];
    take(&kernel, &first).unwrap().unwrap();
    let got = take(&kernel, &[request("a", &["03:00.0"]), request("b", &["02:00.0"])]).unwrap().unwrap();
    assert_eq!(
        (addresses(&got[0]), addresses(&got[1])),
        (vec!["0000:03:00.0".into()], vec!["0000:02:00.0".into()])
    );
    // A claim that fails leaves it at that.
    take(&kernel, &[request("a", &["02:00.0"]), request("b", &["05:00.0"])]).unwrap().unwrap_err();
    release(&kernel, "a").unwrap().unwrap();
    assert_eq!(kernel.driver("03:00.0").as_deref(), Some("nvme"));
    assert_eq!(kernel.driver("04:00.1").as_deref(), Some("igb"));
    assert_eq!(kernel.driver("02:00.0").as_deref(), Some("vfio-pci"));
    release(&kernel, "b").unwrap().unwrap();
    assert_eq!(*kernel.functions.borrow(), before);
}

#[test]
fn a_function_whose_virtual_ones_are_used_keeps_its_driver() {
    let kernel = Kernel::usual();
    take(&kernel, &[request("a", &["vf of 01:00.0"])]).unwrap().unwrap();
    let why = take(&kernel, &[request("b", &["01:00.0"])]).unwrap().unwrap_err().to_string();
    assert!(why.contains("it has 4 virtual functions"), "{why}");
    // Another cluster gets one of those that are left; they stay until the last one goes.
    let got = take(&kernel, &[request("b", &["3 x vf of 01:00.0"])]).unwrap().unwrap();
    assert_eq!(addresses(&got[0]), ["0000:01:10.1", "0000:01:10.2", "0000:01:10.3"]);
    assert!(take(&kernel, &[request("c", &["vf of 01:00.0"])]).unwrap().is_err());
    release(&kernel, "a").unwrap().unwrap();
    assert_eq!(kernel.functions.borrow()[&at("01:00.0")].count, 4);
    release(&kernel, "b").unwrap().unwrap();
    assert_eq!(kernel.functions.borrow()[&at("01:00.0")].count, 0);
    let why = take(&kernel, &[request("c", &["5 x vf of 01:00.0"])]).unwrap().unwrap_err().to_string();
    assert!(why.contains("can have 4 virtual functions, and 5 are wanted"), "{why}");
}

#[test]
fn what_a_program_has_open_is_not_taken_from_it() {
    let kernel = Kernel::usual();
    take(&kernel, &[request("a", &["02:00.0"])]).unwrap().unwrap();
    kernel.open.borrow_mut().insert(3);
    let why = release(&kernel, "a").unwrap().unwrap_err().to_string();
    assert!(why.contains("a program has /dev/vfio/3 open"), "{why}");
    assert_eq!(kernel.driver("02:00.0").as_deref(), Some("vfio-pci"));
    kernel.open.borrow_mut().clear();
    repair(&kernel, &[]).unwrap();
    assert_eq!(kernel.driver("02:00.0").as_deref(), Some("nvme"));
}

#[test]
fn what_others_have_changed_since_is_left_alone() {
    let kernel = Kernel::usual();
    take(&kernel, &[request("a", &["02:00.0", "03:00.0", "vf of 01:00.0"])]).unwrap().unwrap();
    kernel.change("02:00.0", |it| (it.driver, it.chosen) = (Some("other".into()), Some("other".into())));
    kernel.functions.borrow_mut().remove(&at("03:00.0"));
    kernel.change("01:10.2", |it| it.driver = Some("nvme".into()));
    release(&kernel, "a").unwrap().unwrap();
    assert_eq!(kernel.driver("02:00.0").as_deref(), Some("other"));
    assert_eq!(kernel.driver("01:10.2").as_deref(), Some("nvme"), "this host uses one");
    assert_eq!(kernel.driver("01:10.0"), None);
    assert_eq!(*kernel.stored.borrow(), None);
}

#[test]
fn another_boot_makes_the_ledger_void() {
    let kernel = Kernel::usual();
    take(&kernel, &[request("a", &["02:00.0"])]).unwrap().unwrap();
    let after = Kernel { stored: kernel.stored.clone(), ..Kernel::usual() };
    after.boot.set(1);
    assert_eq!(
        addresses(&take(&after, &[request("b", &["02:00.0"])]).unwrap().unwrap()[0]),
        ["0000:02:00.0"]
    );
    after.save(Some(b"{\"version\": 1")).unwrap();
    assert!(Devices::open(&after, &after).is_err(), "a damaged ledger gives nothing away");
}

/// Numbers that look as if by chance, the same ones each time.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % end as u64) as usize
    }
}

/// Clusters that come, go and are killed by chance.
#[test]
fn whatever_happens_nothing_is_given_twice_and_all_comes_back() {
    const CLUSTERS: [&str; 3] = ["a", "b", "c"];
    const ASKED: [&str; 7] =
        ["01:00.0", "02:00.0", "nvme", "2 x nvme", "vf of 01:00.0", "2 x vf of 01:00.0", "network"];
    let initial = Kernel::usual().functions.into_inner();
    let (mut kills, mut taken) = (0, 0);
    for seed in 1..150 {
        let mut chance = Chance(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let kernel = Kernel::usual();
        // Clusters that run, and what they have open.
        let mut running: BTreeMap<&str, BTreeSet<u32>> = BTreeMap::new();
        for _ in 0..30 {
            let cluster = CLUSTERS[chance.below(3)];
            let alive: Vec<&str> = running.keys().copied().collect();
            repair(&kernel, &alive).unwrap();
            kernel.fuse.set((chance.below(3) == 0).then(|| chance.below(30) as u32));
            if running
                .remove(cluster)
                .map(|groups| kernel.open.borrow_mut().retain(|it| !groups.contains(it)))
                .is_some()
            {
                // It ends. If the command is killed, the next one repairs.
                match release(&kernel, cluster) {
                    Some(done) => done.unwrap(),
                    None => kills += 1,
                }
            } else {
                let wants: Vec<&str> =
                    (0..=chance.below(2)).map(|_| ASKED[chance.below(ASKED.len())]).collect();
                match take(&kernel, &[request(cluster, &wants)]) {
                    Some(Ok(got)) => {
                        let groups: BTreeSet<u32> = got[0].iter().map(|it| it.group).collect();
                        kernel.open.borrow_mut().extend(&groups);
                        running.insert(cluster, groups);
                        taken += 1;
                    }
                    Some(Err(_)) => (),
                    None => kills += 1,
                }
            }
            kernel.fuse.set(None);
            check(&kernel, &running);
        }
        kernel.open.borrow_mut().clear();
        repair(&kernel, &[]).unwrap();
        assert_eq!(*kernel.functions.borrow(), initial, "seed {seed}");
    }
    assert!(kills > 100 && taken > 500, "{kills} kills, {taken} clusters that came up");
}

/// Checks that clusters that run have what they took, and nobody else has.
fn check(kernel: &Kernel, running: &BTreeMap<&str, BTreeSet<u32>>) {
    let ledger = Ledger::read(kernel, kernel).unwrap();
    for (cluster, groups) in running {
        for group in groups {
            let held: Vec<_> = ledger.held.iter().filter(|held| held.group == *group).collect();
            assert!(!held.is_empty() && held.iter().all(|held| held.holder == holder(cluster)));
            let functions = kernel.functions.borrow();
            let all: Vec<&Fake> = functions.values().filter(|it| it.group == *group).collect();
            assert!(
                all.iter().all(|it| it.driver.as_deref() == Some("vfio-pci")),
                "the group is bound as a whole"
            );
        }
    }
    let groups: Vec<u32> = running.values().flatten().copied().collect();
    assert_eq!(groups.iter().collect::<BTreeSet<_>>().len(), groups.len(), "no group is given twice");
}
