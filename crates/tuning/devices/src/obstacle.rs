//! Obstacles to giving a function to a machine, and how to mend them.

use crate::address::Address;
use crate::driver::VFIO;
use crate::function::Function;
use crate::survey::{Iommu, Survey, User};
use crate::tree::Tree;
use crate::usage;
use schemars::JsonSchema;
use serde::Serialize;
use std::io::ErrorKind;

/// A sort of obstacle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ObstacleKind {
    /// Nothing keeps devices to the memory of their machine.
    IommuOff,
    /// Functions that can't be told from it belong to others.
    GroupShared,
    /// This host uses it.
    DriverBusy,
    /// It has virtual functions, which end if its driver changes.
    HasVirtualFunctions,
    /// The host's console is shown on it.
    ShowsConsole,
    /// Another program has it.
    InUse,
    /// This user may not change its driver, or not open it.
    NoRights,
    /// This user may lock too little memory.
    Memlock,
}

/// An obstacle to giving a function to a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Obstacle {
    /// Its sort.
    pub kind: ObstacleKind,
    /// The state that is in the way.
    pub why: String,
    /// The way to mend it.
    pub remedy: String,
}

/// The obstacles to giving a function to a machine that gets those at `together` as well. Without a user
/// rights are none.
pub fn obstacles(
    tree: &dyn Tree,
    survey: &Survey,
    function: &Function,
    together: &[Address],
    user: Option<User>,
) -> Vec<Obstacle> {
    let mut all = Vec::new();
    let mut add = |kind, why: String, remedy: &str| all.push(Obstacle { kind, why, remedy: remedy.into() });
    match (survey.iommu, function.group) {
        (Iommu::On, Some(_)) => (),
        (Iommu::On, None) => add(
            ObstacleKind::IommuOff,
            "the IOMMU does not cover it".into(),
            "choose another device; the firmware's tables say which ones it covers",
        ),
        (Iommu::Unused, _) => add(
            ObstacleKind::IommuOff,
            "the kernel does not use the IOMMU that the firmware tells of".into(),
            "boot with intel_iommu=on (Intel) or without amd_iommu=off (AMD)",
        ),
        (Iommu::Absent, _) => add(
            ObstacleKind::IommuOff,
            "the firmware tells of no IOMMU".into(),
            "turn on VT-d or AMD-Vi in the firmware's settings; on Intel boot with intel_iommu=on as well",
        ),
    }
    if !function.vfs.is_empty() {
        add(
            ObstacleKind::HasVirtualFunctions,
            format!("it has {} virtual functions", function.vfs.len()),
            "give machines these (\"vf of ADDRESS\"), or remove them first: echo 0 > .../sriov_numvfs",
        );
    }
    let strangers: Vec<String> = survey
        .group_of(function)
        .filter(|it| !goes_along(function, it) && !together.contains(&it.address))
        .map(|it| format!("{} ({})", it.address, it.kind()))
        .collect();
    if !strangers.is_empty() {
        let group = function.group.unwrap_or_default();
        add(
            ObstacleKind::GroupShared,
            format!("it is in group {group} with {}", strangers.join(", ")),
            "give all of them to one machine; or turn on ACS in the firmware's settings, or use another slot",
        );
    }
    let along = survey.group_of(function).filter(|it| goes_along(function, it));
    for it in std::iter::once(function).chain(along).filter(|it| it.driver.as_deref() != Some(VFIO)) {
        for why in usage::of(tree, it) {
            let remedy = "unmount it, take it down or out of what it is a part of";
            add(ObstacleKind::DriverBusy, format!("this host uses it: {why}"), remedy);
        }
    }
    if function.shows_console && function.driver.as_deref() != Some(VFIO) {
        add(
            ObstacleKind::ShowsConsole,
            "the host's console is shown on it".into(),
            "have the firmware show it elsewhere, or bind the device to vfio-pci as the host boots (vfio-pci.ids=)",
        );
    }
    all.extend(user.and_then(|user| rights(tree, function, user)));
    all
}

/// True if a function of the same group goes along with another one: it is beside it, and no virtual
/// functions depend on it.
pub fn goes_along(function: &Function, other: &Function) -> bool {
    other.address.is_beside(function.address) && other.vfs.is_empty() && other.physical.is_none()
}

fn rights(tree: &dyn Tree, function: &Function, user: User) -> Option<Obstacle> {
    let obstacle = |kind, why: String, remedy: String| Some(Obstacle { kind, why, remedy });
    if function.driver.as_deref() != Some(VFIO) {
        let why = "only root can change its driver";
        let remedy = "start the machine as root, or have root bind the device to vfio-pci first";
        return (!user.is_root)
            .then(|| obstacle(ObstacleKind::NoRights, why.into(), remedy.into()))
            .flatten();
    }
    let file = format!("dev/vfio/{}", function.group?);
    match tree.try_open(&file) {
        Err(why) if why.kind() == ErrorKind::PermissionDenied => obstacle(
            ObstacleKind::NoRights,
            format!("/{file} can't be opened by this user"),
            format!("as root: chown USER /{file}"),
        ),
        Err(why) if why.kind() == ErrorKind::ResourceBusy => obstacle(
            ObstacleKind::InUse,
            format!("another program has /{file} open"),
            "end that program: fuser -v names it".into(),
        ),
        _ => None,
    }
}

/// An obstacle if a user can't lock this much memory: all of a machine's is locked, for a device reaches it
/// at any time. Root can raise the limit.
pub fn memlock(user: User, bytes: u64) -> Option<Obstacle> {
    let limit = user.memlock.filter(|limit| !user.is_root && *limit < bytes)?;
    let (limit, mebibytes) = (limit >> 20, bytes.div_ceil(1 << 20));
    Some(Obstacle {
        kind: ObstacleKind::Memlock,
        why: format!("this user may lock {limit} MiB of memory, and the machine takes {mebibytes} MiB"),
        remedy: "raise the limit memlock (limits.conf(5); LimitMEMLOCK= of systemd), or start it as root"
            .into(),
    })
}
