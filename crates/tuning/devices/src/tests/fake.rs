//! A kernel's PCI functions, in which writes have the effects that they have in sysfs.

use crate::address::Address;
use crate::ledger::Store;
use crate::tree::Tree;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind};

/// The panic of a program that is killed.
pub struct Killed;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fake {
    pub id: (u16, u16),
    pub class: u32,
    /// The driver that takes it by itself.
    pub native: &'static str,
    pub driver: Option<String>,
    pub chosen: Option<String>,
    pub group: u32,
    pub node: i32,
    pub total: u32,
    pub count: u32,
    pub autoprobe: bool,
    pub physical: Option<Address>,
    /// Network interfaces that are up.
    pub up: bool,
}

/// The kernel, and the place of the ledger.
#[derive(Default)]
pub struct Kernel {
    pub functions: RefCell<BTreeMap<Address, Fake>>,
    pub stored: RefCell<Option<Vec<u8>>>,
    /// Groups that programs have open.
    pub open: RefCell<BTreeSet<u32>>,
    /// Functions that VFIO does not take.
    pub refused: RefCell<BTreeSet<Address>>,
    /// The number of further steps after which the program is killed.
    pub fuse: Cell<Option<u32>>,
    pub boot: Cell<u32>,
    pub loaded: Cell<bool>,
}

pub fn at(text: &str) -> Address {
    text.parse().unwrap()
}

pub fn fake(class: u32, native: &'static str, group: u32) -> Fake {
    Fake {
        id: (0x1b36, 0x10),
        class,
        native,
        driver: Some(native.into()),
        chosen: None,
        group,
        node: -1,
        total: 0,
        count: 0,
        autoprobe: true,
        physical: None,
        up: false,
    }
}

fn error(kind: ErrorKind) -> io::Error {
    kind.into()
}

impl Kernel {
    pub fn of(functions: impl IntoIterator<Item = (&'static str, Fake)>) -> Kernel {
        let functions = functions.into_iter().map(|(address, fake)| (at(address), fake)).collect();
        Kernel { functions: RefCell::new(functions), ..Kernel::default() }
    }

    /// An NVMe drive with virtual functions, two without, a network card with two functions in a group, and a
    /// bridge.
    pub fn usual() -> Kernel {
        let nvme = |group, node| Fake { node, ..fake(0x010802, "nvme", group) };
        Kernel::of([
            ("00:01.0", fake(0x060400, "pcieport", 1)),
            ("01:00.0", Fake { total: 4, ..nvme(2, 0) }),
            ("02:00.0", nvme(3, 1)),
            ("03:00.0", nvme(4, 1)),
            ("04:00.0", Fake { id: (0x8086, 0x10c9), ..fake(0x020000, "igb", 5) }),
            ("04:00.1", Fake { id: (0x8086, 0x10c9), ..fake(0x020000, "igb", 5) }),
        ])
    }

    /// A step that a program makes, unless it is killed before.
    fn step(&self) {
        match self.fuse.get() {
            Some(0) => std::panic::resume_unwind(Box::new(Killed)),
            left => self.fuse.set(left.map(|left| left - 1)),
        }
    }

    pub fn driver(&self, address: &str) -> Option<String> {
        self.functions.borrow().get(&at(address)).and_then(|it| it.driver.clone())
    }

    pub fn change(&self, address: &str, change: impl FnOnce(&mut Fake)) {
        change(self.functions.borrow_mut().get_mut(&at(address)).unwrap());
    }

    fn file(&self, address: Address, name: &str) -> Option<String> {
        let functions = self.functions.borrow();
        let it = functions.get(&address)?;
        Some(match name {
            "vendor" => format!("0x{:04x}", it.id.0),
            "device" => format!("0x{:04x}", it.id.1),
            "class" => format!("0x{:06x}", it.class),
            "numa_node" => it.node.to_string(),
            "driver_override" => it.chosen.clone().unwrap_or_else(|| "(null)".into()),
            "sriov_totalvfs" if it.total > 0 => it.total.to_string(),
            "sriov_numvfs" if it.total > 0 => it.count.to_string(),
            "sriov_drivers_autoprobe" if it.total > 0 => u8::from(it.autoprobe).to_string(),
            "net/eth0/flags" if it.up => "0x1003".into(),
            _ => return None,
        })
    }

    fn unbind(&self, driver: &str, address: Address) -> io::Result<()> {
        let mut functions = self.functions.borrow_mut();
        let it = functions.get_mut(&address).filter(|it| it.driver.as_deref() == Some(driver));
        let it = it.ok_or_else(|| error(ErrorKind::NotFound))?;
        assert_eq!(it.count, 0, "{address} loses its driver though it has virtual functions");
        assert!(driver != "vfio-pci" || !self.open.borrow().contains(&it.group), "this would wait for ever");
        it.driver = None;
        Ok(())
    }

    fn bind(&self, driver: &str, address: Address) -> io::Result<()> {
        let mut functions = self.functions.borrow_mut();
        let it = functions.get_mut(&address).ok_or_else(|| error(ErrorKind::NotFound))?;
        let takes = match &it.chosen {
            Some(chosen) => chosen == driver,
            None => it.native == driver,
        };
        if it.driver.is_some() || !takes || driver == "vfio-pci" && self.refused.borrow().contains(&address) {
            return Err(error(ErrorKind::NotFound));
        }
        assert!(driver != "vfio-pci" || self.loaded.get());
        it.driver = Some(driver.into());
        Ok(())
    }

    fn probe(&self, address: Address) {
        let functions = self.functions.borrow();
        let Some(it) = functions.get(&address) else { return };
        let autoprobe = it.physical.and_then(|it| functions.get(&it)).is_none_or(|it| it.autoprobe);
        let driver = it.chosen.clone().or_else(|| autoprobe.then(|| it.native.into()));
        drop(functions);
        let _ = driver.map(|driver| self.bind(&driver, address));
    }

    fn set_count(&self, physical: Address, count: u32) -> io::Result<()> {
        let mut functions = self.functions.borrow_mut();
        let it = functions.get_mut(&physical).unwrap();
        if it.count > 0 && count > 0 {
            return Err(error(ErrorKind::ResourceBusy));
        }
        assert!(count <= it.total && it.driver.as_deref() == Some(it.native));
        it.count = count;
        let model = Fake { physical: Some(physical), total: 0, count: 0, driver: None, ..it.clone() };
        let was_open = |it: &Fake| self.open.borrow().contains(&it.group);
        functions.retain(|_, it| {
            assert!(it.physical != Some(physical) || !was_open(it), "a virtual function is in use");
            it.physical != Some(physical)
        });
        let address = |number: u32| Address { device: 16, function: number as u8, ..physical };
        let group = |number: u32| 100 + 10 * u32::from(physical.bus) + number;
        functions.extend(
            (0..count).map(|n| (address(n), Fake { group: group(n), chosen: None, ..model.clone() })),
        );
        drop(functions);
        (0..count).for_each(|number| self.probe(address(number)));
        Ok(())
    }
}

impl Tree for Kernel {
    fn bytes(&self, path: &str) -> io::Result<Vec<u8>> {
        if path == "proc/sys/kernel/random/boot_id" {
            return Ok(format!("boot{}\n", self.boot.get()).into());
        }
        let found = path.strip_prefix("sys/bus/pci/devices/").and_then(|rest| rest.split_once('/'));
        let text = found.and_then(|(address, name)| self.file(address.parse().ok()?, name));
        text.map(|text| format!("{text}\n").into()).ok_or_else(|| error(ErrorKind::NotFound))
    }

    fn names(&self, directory: &str) -> io::Result<Vec<String>> {
        let functions = self.functions.borrow();
        match directory {
            "sys/kernel/iommu_groups" => {
                return Ok(functions.values().map(|it| it.group.to_string()).collect())
            }
            "sys/bus/pci/devices" => return Ok(functions.keys().map(ToString::to_string).collect()),
            "sys/bus/pci/drivers/vfio-pci" if self.loaded.get() => return Ok(vec![]),
            _ => (),
        }
        let found = directory.strip_prefix("sys/bus/pci/devices/");
        let (address, rest) = found.map(|it| it.split_once('/').unwrap_or((it, ""))).unwrap_or_default();
        let it = address.parse().ok().and_then(|address| functions.get(&address));
        match (it, rest) {
            (Some(it), "") => Ok((0..it.count).map(|number| format!("virtfn{number}")).collect()),
            (Some(it), "net") if it.up => Ok(vec!["eth0".into()]),
            _ => Err(error(ErrorKind::NotFound)),
        }
    }

    fn target(&self, path: &str) -> io::Result<String> {
        let functions = self.functions.borrow();
        let none = || error(ErrorKind::NotFound);
        let rest = path.strip_prefix("sys/bus/pci/devices/").ok_or_else(none)?;
        let Some((address, name)) = rest.split_once('/') else {
            return Ok(format!("../../../devices/pci0000:00/{rest}"));
        };
        let (address, it) = functions.get_key_value(&at(address)).ok_or_else(none)?;
        let its = |number: &str| Address { device: 16, function: number.parse().unwrap(), ..*address };
        match name {
            "driver" => {
                it.driver.as_ref().map(|driver| format!("../bus/pci/drivers/{driver}")).ok_or_else(none)
            }
            "iommu_group" => Ok(format!("../../kernel/iommu_groups/{}", it.group)),
            "physfn" => it.physical.map(|it| format!("../{it}")).ok_or_else(none),
            _ => name.strip_prefix("virtfn").map(|number| format!("../{}", its(number))).ok_or_else(none),
        }
    }

    fn write(&self, path: &str, value: &str) -> io::Result<()> {
        self.step();
        let rest = path.strip_prefix("sys/bus/pci/").unwrap();
        let parts: Vec<&str> = rest.split('/').collect();
        match parts[..] {
            ["drivers_probe"] => self.probe(at(value)),
            ["drivers", driver, "unbind"] => return self.unbind(driver, at(value)),
            ["drivers", driver, "bind"] => return self.bind(driver, at(value)),
            ["devices", address, "driver_override"] => {
                self.change(address, |it| it.chosen = (!value.is_empty()).then(|| value.into()));
            }
            ["devices", address, "sriov_drivers_autoprobe"] => {
                self.change(address, |it| it.autoprobe = value == "1")
            }
            ["devices", address, "sriov_numvfs"] => {
                return self.set_count(at(address), value.parse().unwrap())
            }
            _ => panic!("{path} is written to"),
        }
        Ok(())
    }

    fn try_open(&self, path: &str) -> io::Result<()> {
        let group = path.strip_prefix("dev/vfio/").unwrap().parse().unwrap();
        match self.open.borrow().contains(&group) {
            true => Err(error(ErrorKind::ResourceBusy)),
            false => Ok(()),
        }
    }

    fn load(&self, module: &str) -> io::Result<()> {
        assert_eq!(module, "vfio-pci");
        self.loaded.set(true);
        Ok(())
    }
}

impl Store for Kernel {
    fn load(&self) -> io::Result<Option<Vec<u8>>> {
        Ok(self.stored.borrow().clone())
    }

    fn save(&self, bytes: Option<&[u8]>) -> io::Result<()> {
        self.step();
        *self.stored.borrow_mut() = bytes.map(<[u8]>::to_vec);
        Ok(())
    }
}
