//! The machines that a description means, with their names and options.

use super::cluster::{Description, MachineGroup, Size};
use super::fault::Fault;
use vshmem_base::size;
use vshmem_hypervisor::boot::image::{DirectKernel, Image, System};
use vshmem_hypervisor::launcher::options::MachineOptions;
use vshmem_placement::pages::Pages;

/// Machines that a cluster can have.
pub const MAX: usize = 32;
/// Bytes of the longest name of a machine.
pub const MAX_NAME: usize = 24;
/// Bytes that all names together may take on the machines' kernel's command line.
const MAX_NAMES: usize = 400;
/// The machines of a description that names none.
const DEFAULT_COUNT: u32 = 2;
const DEFAULT_CPUS: u32 = 1;
/// Memory of a machine whose description says nothing of it.
pub const DEFAULT_MEMORY: Size = Size(512 << 20);
/// Bytes of the least memory of a machine.
const MIN_MEMORY: u64 = 128 << 20;
/// Bytes of the least memory of a slim machine. Debian's kernel takes 48 MiB of it before any program runs,
/// and unpacks the initramfs beside its archive.
const MIN_SLIM_MEMORY: u64 = 112 << 20;

/// The name by which a machine reaches itself.
const LOCALHOST: &str = "localhost";

/// The word for this host's root in place of a disk image.
pub const HOST: &str = "host";

/// The word for a slim system in place of a disk image.
pub const SLIM: &str = "slim";

/// The machines of a description, still without pools, each with the name of its group.
pub fn machines(description: &Description) -> Result<Vec<(MachineOptions, String)>, Fault> {
    let two = [MachineGroup { count: Some(DEFAULT_COUNT), ..MachineGroup::default() }];
    let groups = match description.machines.is_empty() {
        true => &two[..],
        false => &description.machines,
    };
    let pages = description.pages.as_ref().and_then(|pages| pages.machines);
    let mut all: Vec<(MachineOptions, String)> = Vec::new();
    let mut unnamed = 0;
    for (place, group) in groups.iter().enumerate() {
        let place = place.to_string();
        let at = |key| ["machines", &*place, key];
        check(group, pages, &at)?;
        let image = image(group, &at)?;
        for number in 0..group.count.unwrap_or(1) {
            let name = match (&group.name, group.count) {
                (Some(name), None) => name.clone(),
                (Some(name), Some(_)) => format!("{name}{number}"),
                (None, _) => format!("vm{}", unnamed + number),
            };
            // Names of hosts are the same in capitals, and a machine finds the others by them.
            let same = all.iter().find(|(other, _)| other.name.eq_ignore_ascii_case(&name));
            let wrong = match same {
                _ if name.len() > MAX_NAME => {
                    Some(format!("a machine's name has at most {MAX_NAME} characters, and {name} is longer"))
                }
                Some((other, _)) if other.name != name => {
                    Some(format!("{} and {name} would be one name in the machines' network", other.name))
                }
                Some(_) => Some(format!("two machines would be called {name}")),
                None => None,
            };
            if let Some(what) = wrong {
                return Err(Fault::new(&at("name"), what));
            }
            let cpus = group.cpus.unwrap_or(DEFAULT_CPUS);
            let memory = group.memory.unwrap_or(DEFAULT_MEMORY).0;
            let pages = group.pages.or(pages);
            let devices = group.devices.clone();
            let group = group.name.clone().unwrap_or_default();
            let image = image.clone();
            all.push((MachineOptions { name, cpus, memory, pages, devices, image, pools: vec![] }, group));
        }
        if group.name.is_none() {
            unnamed += group.count.unwrap_or(1);
        }
        if all.len() > MAX {
            return Err(Fault::new(&at("count"), format!("a cluster has 1 to {MAX} machines")));
        }
    }
    if all.iter().map(|(machine, _)| machine.name.len() + 4).sum::<usize>() > MAX_NAMES {
        let what = "the machines' names are too long for a kernel's command line: give them shorter ones";
        return Err(Fault::new(&["machines"], what));
    }
    Ok(all)
}

/// The index of the group that the machine with this index is of, if the description names groups.
pub fn group_of(description: &Description, machine: usize) -> Option<usize> {
    let mut machines = 0;
    description.machines.iter().position(|group| {
        machines += group.count.unwrap_or(1) as usize;
        machine < machines
    })
}

/// An error unless the machines of a group can be as it says.
fn check<'a>(
    group: &MachineGroup,
    pages: Option<Pages>,
    at: &dyn Fn(&'a str) -> [&'a str; 3],
) -> Result<(), Fault> {
    if let Some(name) = group.name.as_deref().filter(|name| !is_name(name)) {
        let why = match name.eq_ignore_ascii_case(LOCALHOST) {
            true => "every machine calls itself so",
            false => "a name has letters, digits and '-', and begins with a letter",
        };
        return Err(Fault::new(&at("name"), format!("{name:?} can't be a machine's name: {why}")));
    }
    if group.count.is_some_and(|count| count == 0 || count as usize > MAX) {
        return Err(Fault::new(&at("count"), format!("a cluster has 1 to {MAX} machines")));
    }
    if group.cpus.is_some_and(|cpus| cpus == 0 || cpus > 255) {
        return Err(Fault::new(&at("cpus"), "a machine has 1 to 255 cores"));
    }
    let (least, what) = match is_image(group, SLIM) {
        true => (MIN_SLIM_MEMORY, "a slim machine"),
        false => (MIN_MEMORY, "a machine"),
    };
    if group.memory.is_some_and(|Size(bytes)| bytes < least) {
        let what = format!("{what} needs at least {} of memory", size::show(least));
        return Err(Fault::new(&at("memory"), what));
    }
    let memory = group.memory.unwrap_or(DEFAULT_MEMORY).0;
    let pages = group.pages.or(pages).filter(|pages| pages.reserved().is_some_and(|size| memory % size != 0));
    if let Some(pages) = pages {
        let key = if group.memory.is_some() { "memory" } else { "pages" };
        let what = format!("{} is no whole number of {pages}", size::show(memory));
        return Err(Fault::new(&at(key), what));
    }
    Ok(())
}

fn is_image(group: &MachineGroup, word: &str) -> bool {
    group.image.as_ref().is_some_and(|image| image.as_os_str() == word)
}

/// The image that the machines of a group boot.
fn image<'a>(group: &MachineGroup, at: &dyn Fn(&'a str) -> [&'a str; 3]) -> Result<Image, Fault> {
    let own = |disk, kernel| Image::Own(Box::new(System { disk, kernel, awaited: false }));
    let is = |word| is_image(group, word);
    let disk = group.image.clone().filter(|_| !is(HOST) && !is(SLIM));
    let Some(kernel) = &group.kernel else {
        for (key, given) in
            [("initramfs", group.initramfs.is_some()), ("parameters", group.parameters.is_some())]
        {
            if given {
                return Err(Fault::new(&at(key), "it belongs to a kernel, and none is named here"));
            }
        }
        return Ok(match disk {
            Some(disk) => own(Some(disk), None),
            None if is(SLIM) => Image::Slim,
            None => Image::Host,
        });
    };
    if disk.is_none() && (group.initramfs.is_none() || is(SLIM)) {
        let what = "a kernel of their own takes an initramfs or a disk image: other machines \
            boot the kernel that is named at the top of the file";
        return Err(Fault::new(&at("kernel"), what));
    }
    let kernel = DirectKernel {
        image: kernel.clone(),
        initramfs: group.initramfs.clone(),
        parameters: group.parameters.clone().unwrap_or_default(),
    };
    Ok(own(disk, Some(kernel)))
}

/// Whether it can be a machine's name, which is also its host name.
fn is_name(name: &str) -> bool {
    let fine = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
    fine && name.starts_with(|first: char| first.is_ascii_alphabetic())
        && !name.eq_ignore_ascii_case(LOCALHOST)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(groups: &[(Option<&str>, Option<u32>)]) -> Result<Vec<String>, Fault> {
        let group = |&(name, count): &(Option<&str>, Option<u32>)| MachineGroup {
            name: name.map(Into::into),
            count,
            ..MachineGroup::default()
        };
        let machines = groups.iter().map(group).collect();
        let all = super::machines(&Description { machines, ..Description::default() })?;
        Ok(all.into_iter().map(|(machine, _)| machine.name).collect())
    }

    #[test]
    fn machines_have_names() {
        assert_eq!(named(&[]).unwrap(), ["vm0", "vm1"]);
        let all = named(&[(Some("boss"), None), (None, Some(2)), (Some("w"), Some(2)), (None, None)]);
        assert_eq!(all.unwrap(), ["boss", "vm0", "vm1", "w0", "w1", "vm2"]);
    }

    #[test]
    fn what_can_not_be_is_refused() {
        let refused = |groups: &[_]| {
            let fault = named(groups).unwrap_err();
            (fault.at.join("."), fault.error.to_string())
        };
        let long = "x".repeat(MAX_NAME);
        for (name, word) in [
            ("a b", "letters"),
            ("-a", "letters"),
            ("localhost", "calls itself"),
            ("LocalHost", "calls itself"),
            ("", "letters"),
        ] {
            let (at, why) = refused(&[(Some(name), None)]);
            assert!(at == "machines.0.name" && why.contains(word), "{at} {why}");
        }
        assert!(refused(&[(Some(&long), Some(1))]).1.contains("at most 24"));
        assert!(refused(&[(None, Some(1)), (Some("vm0"), None)]).1.contains("two machines"));
        let (at, why) = refused(&[(Some("a"), None), (Some("A"), None)]);
        assert!(at == "machines.1.name" && why.contains("a and A would be one name"), "{at} {why}");
        assert!(refused(&[(None, Some(1)), (Some("VM"), Some(1))]).1.contains("vm0 and VM0"));
        assert_eq!(refused(&[(None, Some(0))]).0, "machines.0.count");
        assert_eq!(refused(&[(None, Some(20)), (None, Some(20))]).0, "machines.1.count");
        let long: Vec<String> = (0..20).map(|n| format!("machine-of-a-long-name{n}")).collect();
        let long: Vec<_> = long.iter().map(|name| (Some(name.as_str()), None)).collect();
        assert!(refused(&long).1.contains("too long"));
        assert!(named(&[(Some("x"), Some(32))]).is_ok());
    }
}
