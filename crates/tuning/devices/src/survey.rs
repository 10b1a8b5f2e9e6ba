//! A survey of a host: its functions, and its IOMMU.

use crate::address::Address;
use crate::function::Function;
use crate::tree::Tree;
use rustix::process::{geteuid, getrlimit, Resource};

/// The functions of a host.
#[derive(Debug, Clone)]
pub struct Survey {
    /// All of them, by their addresses.
    pub functions: Vec<Function>,
    /// The IOMMU, which keeps a device to the memory of its machine.
    pub iommu: Iommu,
}

/// The state of a host's IOMMU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Iommu {
    /// It is on.
    On,
    /// The firmware tells of one, and the kernel does not use it.
    Unused,
    /// The firmware tells of none.
    Absent,
}

/// The rights of a user who asks for functions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// The user may change drivers.
    pub is_root: bool,
    /// Bytes of memory that the user may lock; `None`: any number.
    pub memlock: Option<u64>,
}

impl User {
    /// The user of this process.
    pub fn current() -> User {
        User { is_root: geteuid().is_root(), memlock: getrlimit(Resource::Memlock).maximum }
    }
}

impl Survey {
    /// Looks at a host.
    pub fn of(tree: &dyn Tree) -> Survey {
        let has = |name: &str| tree.bytes(&format!("sys/firmware/acpi/tables/{name}")).is_ok();
        let listed = |name: &str| tree.names_or_none("sys/firmware/acpi/tables").iter().any(|it| it == name);
        let iommu = match tree.names_or_none("sys/kernel/iommu_groups").is_empty() {
            false => Iommu::On,
            // Intel's table, AMD's, and Arm's. Only root reads them.
            true if ["DMAR", "IVRS", "IORT"].iter().any(|name| has(name) || listed(name)) => Iommu::Unused,
            true => Iommu::Absent,
        };
        Survey { functions: Function::read_all(tree), iommu }
    }

    /// The function at an address.
    pub fn find(&self, address: Address) -> Option<&Function> {
        self.functions.iter().find(|function| function.address == address)
    }

    /// The other functions of a function's group. Bridges don't count: they stay with the kernel.
    pub fn group_of<'a>(&'a self, of: &'a Function) -> impl Iterator<Item = &'a Function> {
        let is_other =
            move |it: &&Function| it.address != of.address && it.group == of.group && !it.is_bridge();
        self.functions.iter().filter(move |it| of.group.is_some() && is_other(it))
    }
}
