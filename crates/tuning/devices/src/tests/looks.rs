//! Obstacles, on kernels that are modelled and on a tree of files.

use super::fake::{at, fake, Fake, Kernel};
use crate::direct;
use crate::function::Function;
use crate::obstacle::{memlock, obstacles, ObstacleKind};
use crate::survey::{Iommu, Survey, User};
use crate::tree::{Directory, Tree};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

fn kinds(tree: &dyn Tree, address: &str, together: &[&str], user: Option<User>) -> Vec<ObstacleKind> {
    let survey = Survey::of(tree);
    let together: Vec<_> = together.iter().map(|it| at(it)).collect();
    let all = obstacles(tree, &survey, survey.find(at(address)).unwrap(), &together, user);
    assert!(all.iter().all(|it| !it.why.is_empty() && !it.remedy.is_empty()));
    all.into_iter().map(|it| it.kind).collect()
}

const ROOT: User = User { is_root: true, memlock: Some(1 << 20) };
const OTHER: User = User { is_root: false, memlock: Some(8 << 20) };

#[test]
fn groups_are_given_as_a_whole() {
    let kernel = Kernel::of([
        ("01:00.0", fake(0x030000, "gpu", 7)),
        ("01:00.1", fake(0x040300, "audio", 7)),
        ("02:00.0", fake(0x010802, "nvme", 8)),
        ("03:00.0", fake(0x020000, "igb", 8)),
        ("00:02.0", fake(0x060400, "pcieport", 8)),
    ]);
    assert_eq!(kinds(&kernel, "01:00.0", &[], None), []);
    assert_eq!(kinds(&kernel, "02:00.0", &[], None), [ObstacleKind::GroupShared]);
    assert_eq!(kinds(&kernel, "02:00.0", &["03:00.0"], None), []);
}

#[test]
fn what_is_used_is_not_given() {
    let kernel = Kernel::usual();
    kernel.change("04:00.1", |it| it.up = true);
    assert_eq!(
        kinds(&kernel, "04:00.0", &[], None),
        [ObstacleKind::DriverBusy],
        "what goes along with it is used"
    );
    kernel.change("01:00.0", |it| it.count = 1);
    assert_eq!(kinds(&kernel, "01:00.0", &[], None), [ObstacleKind::HasVirtualFunctions]);
    kernel.change("02:00.0", |it| it.driver = Some("vfio-pci".into()));
    assert_eq!(kinds(&kernel, "02:00.0", &[], Some(OTHER)), []);
    kernel.open.borrow_mut().insert(3);
    assert_eq!(kinds(&kernel, "02:00.0", &[], Some(OTHER)), [ObstacleKind::InUse]);
    assert_eq!(kinds(&kernel, "03:00.0", &[], Some(OTHER)), [ObstacleKind::NoRights]);
    assert_eq!(kinds(&kernel, "03:00.0", &[], Some(ROOT)), []);
}

#[test]
fn locked_memory_is_limited_for_users() {
    assert_eq!(memlock(OTHER, 8 << 20), None);
    assert!(memlock(OTHER, (8 << 20) + 1)
        .unwrap()
        .why
        .contains("8 MiB of memory, and the machine takes 9 MiB"));
    assert_eq!(memlock(ROOT, 1 << 40), None);
    assert_eq!(memlock(User { memlock: None, ..OTHER }, u64::MAX), None);
}

/// A tree of files.
struct Files(PathBuf);

impl Files {
    fn new(name: &str) -> Files {
        let root = std::env::temp_dir().join(format!("vshmem-devices-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Files(root)
    }

    fn write(&self, path: &str, bytes: impl AsRef<[u8]>) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn link(&self, path: &str, target: &str) {
        let path = self.0.join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        symlink(target, path).unwrap();
    }

    /// A function at a place below `sys/devices`.
    fn function(&self, place: &str, class: u32) {
        let (address, at) = (place.rsplit('/').next().unwrap(), format!("sys/devices/{place}"));
        for (name, text) in [
            ("vendor", "0x1b36"),
            ("device", "0x0010"),
            ("class", &format!("{class:#08x}")),
            ("numa_node", "-1"),
        ] {
            self.write(&format!("{at}/{name}"), format!("{text}\n"));
        }
        self.link(&format!("sys/bus/pci/devices/{address}"), &format!("../../../devices/{place}"));
    }

    fn tree(&self) -> Directory {
        Directory::below(Path::new(&self.0))
    }
}

impl Drop for Files {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_tree_of_files_is_read() {
    let files = Files::new("read");
    let slot = "pci0000:00/0000:00:01.0/0000:01:00.0";
    files.function("pci0000:00/0000:00:01.0", 0x060400);
    files.function(slot, 0x010802);
    files.link(&format!("sys/devices/{slot}/driver"), "../../../../bus/pci/drivers/nvme");
    files.write("sys/firmware/acpi/tables/DMAR", "DMAR");
    let disk = format!("sys/devices/{slot}/nvme/nvme0/nvme0n1");
    files.write(&format!("{disk}/nvme0n1p1/dev"), "259:1\n");
    files.link("sys/block/nvme0n1", &format!("../devices/{slot}/nvme/nvme0/nvme0n1"));
    files.write("proc/self/mountinfo", "30 1 259:1 / /data rw - ext4 /dev/nvme0n1p1 rw\n");
    let tree = files.tree();
    let function = Function::read(&tree, at("01:00.0")).unwrap();
    assert_eq!((function.driver.as_deref(), function.group, function.node), (Some("nvme"), None, None));
    assert_eq!((function.bridges.clone(), function.kind()), (vec![at("00:01.0")], "nvme"));
    let survey = Survey::of(&tree);
    assert_eq!((survey.iommu, survey.functions.len()), (Iommu::Unused, 2));
    let all = obstacles(&tree, &survey, &function, &[], None);
    assert_eq!(all[0].kind, ObstacleKind::IommuOff);
    assert!(all[0].remedy.contains("intel_iommu=on"));
    assert_eq!(all[1].why, "this host uses it: nvme0n1p1 is mounted at /data");
    // Several paths lead to such a disk.
    fs::remove_file(files.0.join("sys/block/nvme0n1")).unwrap();
    files.link("sys/block/nvme0n1", "../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1");
    let head = "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1";
    files.write(&format!("{head}/dev"), "259:1\n");
    files.link(&format!("{head}/device"), "../../nvme-subsys0");
    files.link(
        "sys/devices/virtual/nvme-subsystem/nvme-subsys0/nvme0",
        &format!("../../../{slot}/nvme/nvme0"),
    );
    let all = obstacles(&tree, &survey, &function, &[], None);
    assert_eq!(all[1].why, "this host uses it: nvme0n1 is mounted at /data");
}

#[test]
fn what_reaches_a_gpu_is_told_by_the_bridges_between() {
    let files = Files::new("direct");
    let switch = "pci0000:00/0000:00:01.0/0000:01:00.0";
    files.function("pci0000:00/0000:00:01.0", 0x060400);
    files.function(switch, 0x060400);
    for (port, device, class) in [("02:00.0", "03:00.0", 0x030200), ("02:01.0", "04:00.0", 0x020700)] {
        files.function(&format!("{switch}/0000:{port}"), 0x060400);
        files.function(&format!("{switch}/0000:{port}/0000:{device}"), class);
    }
    files.function("pci0000:00/0000:00:02.0", 0x020000);
    let gpu = "sys/devices/pci0000:00/0000:00:01.0/0000:01:00.0/0000:02:00.0/0000:03:00.0";
    files.write(&format!("{gpu}/resource"), "0x0000000000000000 0x00000000ffffffff 0x0\n");
    let found = || {
        let survey = Survey::of(&files.tree());
        direct::of(&files.tree(), &survey, survey.find(at("03:00.0")).unwrap()).unwrap()
    };
    let first = found();
    assert!(first.large_bar && first.peers.len() == 2);
    let near = &first.peers[0];
    assert_eq!((near.address, near.below, near.redirected), (at("04:00.0"), Some(at("01:00.0")), None));
    assert_eq!(first.peers[1].below, None);
    // Two capabilities: another one, and that of ACS, once off and once on.
    let config = |control: u16| {
        let mut bytes = vec![0; 4096];
        bytes[0x100..0x104].copy_from_slice(&(0x0001_u32 | 1 << 16 | 0x148 << 20).to_le_bytes());
        bytes[0x148..0x14c].copy_from_slice(&(0x000d_u32 | 1 << 16).to_le_bytes());
        bytes[0x14e..0x150].copy_from_slice(&control.to_le_bytes());
        bytes
    };
    let at_port = |port: &str| format!("sys/devices/{switch}/0000:{port}/config");
    files.write(&at_port("02:00.0"), config(0));
    files.write(&at_port("02:01.0"), config(0));
    assert_eq!(found().peers[0].redirected, Some(false));
    files.write(&at_port("02:01.0"), config(0x1d));
    assert_eq!(found().peers[0].redirected, Some(true));
    let survey = Survey::of(&files.tree());
    assert_eq!(direct::of(&files.tree(), &survey, survey.find(at("04:00.0")).unwrap()), None);
}

#[test]
fn the_nearest_come_first() {
    let nvme = |node, group| Fake { node, ..fake(0x010802, "nvme", group) };
    let all =
        [("01:00.0", nvme(1, 1)), ("02:00.0", nvme(2, 2)), ("03:00.0", nvme(1, 3)), ("04:00.0", nvme(2, 4))];
    let kernel = Kernel::of(all);
    let mut devices = crate::hold::Devices::open(&kernel, &kernel).unwrap();
    let holder = crate::ledger::Holder { cluster: "a".into(), machine: "vm0".into() };
    let wants = ["02:00.0", "2 x nvme"].map(|want| want.parse().unwrap()).to_vec();
    let got = devices.claim(&[crate::choose::Request { holder, wants }], None).unwrap();
    let addresses: Vec<_> = got[0].iter().map(|it| it.address).collect();
    assert_eq!(addresses, [at("02:00.0"), at("04:00.0"), at("01:00.0")]);
}
