//! The seed of a machine with a system of its own: a small disk on which cloud-init finds the machine's name,
//! its network and its user's keys (datasource NoCloud), and the unit that starts Vshmem's agent there. This
//! program, the library and the drivers are on it, so that nothing has to be installed in the image.

use super::driver;
use fatfs::{format_volume, FileSystem, FormatVolumeOptions, FsOptions};
use serde_json::{json, Value};
use std::fs::{self, File};
use std::io::{self, Cursor, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use vshmem_base::error::{Explain, Result};
use vshmem_base::{elf, library};
use vshmem_guest::seed::{AGENT, DRIVERS, LINKS, SETTINGS};
use vshmem_guest::settings::uplink::Addresses;
use vshmem_guest::settings::{Settings, DRIVER};

/// The label by which cloud-init knows a seed.
const LABEL: &str = "cidata";
/// The library on it.
const LIBRARY: &str = "libvshmem.so";
/// The least size, and what a file system takes besides its files.
const SPARE: usize = 2 << 20;

/// The commands that make the seed available and start the agent, at each boot. A front end that the image
/// may have is replaced by the agent's own.
const START: &str = "\
set -e
seed=/run/vshmem/seed
mkdir -p $seed
mountpoint -q $seed || mount -t vfat -o ro,umask=022 LABEL=cidata $seed
systemctl --quiet mask --runtime --now vshmem-agent-guest.service || true
systemctl --quiet is-active vshmem-machine.service ||
    systemd-run --quiet --no-block --unit=vshmem-machine --description='Agent of Vshmem' \\
        --property=Restart=on-failure --property=KillMode=process --property=TasksMax=infinity \\
        --property=LimitMEMLOCK=infinity $seed/vshmem-machine
";

/// Writes the seed of the machine with these settings.
pub fn write(
    path: &Path,
    settings: &Settings,
    (instance, mac): (&str, &str),
    choice: &driver::Choice,
) -> Result<()> {
    let own = |path: &Path| -> Result<Vec<u8>> {
        let bytes = fs::read(path).explain(|| format!("reading {}", path.display()))?;
        Ok(elf::loaded_part(&bytes))
    };
    let mut files = vec![
        ("meta-data".into(), json(&json!({ "instance-id": instance, "local-hostname": settings.name }))),
        ("network-config".into(), json(&network(settings, mac))),
        ("user-data".into(), [b"#cloud-config\n", &json(&user_data(settings, &keys()))[..]].concat()),
        (SETTINGS.into(), settings.to_command_line().into_bytes()),
        (AGENT.into(), own(Path::new("/proc/self/exe"))?),
    ];
    let mut links = vec![(AGENT, std::env::current_exe().unwrap_or_default())];
    if let Ok(library) = library::find() {
        files.push((LIBRARY.into(), own(&library)?));
        links.push((LIBRARY, library));
    }
    files.push((LINKS.into(), text(&links).into_bytes()));
    for (version, module) in driver::all(choice, DRIVER) {
        files.push((format!("{DRIVERS}/{version}.ko"), module.bytes));
    }
    let failed = || format!("could not write {}", path.display());
    let disk = disk(&files).explain(failed)?;
    let file = File::options().write(true).create(true).truncate(true).mode(0o600).open(path);
    file.and_then(|mut file| file.write_all(&disk)).explain(failed)
}

/// The lines of [`LINKS`]. A path that is no text, or has several lines, has no link.
fn text(links: &[(&str, PathBuf)]) -> String {
    let line = |(name, path): &(&str, PathBuf)| {
        let path = path.to_str().filter(|path| !path.contains('\n'))?;
        Some(format!("{name} {path}\n"))
    };
    links.iter().filter_map(line).collect()
}

/// A value as YAML, which JSON is, too.
fn json(value: &Value) -> Vec<u8> {
    format!("{value:#}\n").into_bytes()
}

fn user_data(settings: &Settings, keys: &[String]) -> Value {
    json!({
        "hostname": settings.name,
        "preserve_hostname": false,
        "manage_etc_hosts": false,
        // The owner of a machine is its root: see `vshmem exec -u root`.
        "disable_root": false,
        "ssh_authorized_keys": keys,
        "bootcmd": [["sh", "-c", START]],
        // The network is set up at each boot, for a restart may have changed it.
        "updates": { "network": { "when": ["boot"] } },
    })
}

/// The first version of the format: all of cloud-init's renderers know it.
fn network(settings: &Settings, mac: &str) -> Value {
    let card = |name: &str, mac: &str, subnet: Value| json!({ "type": "physical", "name": name, "mac_address": mac, "subnets": [subnet] });
    let between = settings.network.map(|network| {
        card("eth0", mac, json!({ "type": "static", "address": format!("{}/24", network.address) }))
    });
    let outside = settings.uplink.as_ref().map(|own| card("eth1", &own.mac, subnet(&own.addresses)));
    let cards: Vec<Value> = between.into_iter().chain(outside).collect();
    match cards.is_empty() {
        true => json!({ "config": "disabled" }),
        false => json!({ "version": 1, "config": cards }),
    }
}

fn subnet(addresses: &Addresses) -> Value {
    let Addresses::Static(own) = addresses else { return json!({ "type": "dhcp4" }) };
    let mut subnet = json!({
        "type": "static",
        "address": format!("{}/{}", own.address, own.prefix),
        "dns_nameservers": own.dns,
    });
    if let Some(gateway) = own.gateway {
        subnet["gateway"] = json!(gateway);
    }
    subnet
}

/// The public keys of this user.
fn keys() -> Vec<String> {
    let home = std::env::var_os("HOME").map(PathBuf::from).unwrap_or_default();
    let files = fs::read_dir(home.join(".ssh")).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut keys: Vec<String> = files
        .filter(|path| path.extension().is_some_and(|ending| ending == "pub"))
        .filter_map(|path| fs::read_to_string(path).ok())
        .map(|key| key.trim().into())
        .collect();
    keys.sort();
    keys
}

/// A FAT file system with these files.
fn disk(files: &[(String, Vec<u8>)]) -> io::Result<Vec<u8>> {
    let size: usize = files.iter().map(|(_, bytes)| bytes.len().next_multiple_of(16 << 10)).sum();
    let mut disk = Cursor::new(vec![0; (size + SPARE).next_multiple_of(1 << 20)]);
    let mut label = [b' '; 11];
    label[..LABEL.len()].copy_from_slice(LABEL.as_bytes());
    format_volume(&mut disk, FormatVolumeOptions::new().volume_label(label))?;
    let volume = FileSystem::new(&mut disk, FsOptions::new())?;
    volume.root_dir().create_dir(DRIVERS)?;
    for (name, bytes) in files {
        let mut file = volume.root_dir().create_file(name)?;
        file.write_all(bytes)?;
        file.flush()?;
    }
    volume.unmount()?;
    Ok(disk.into_inner())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use vshmem_guest::settings::uplink::Card;
    use vshmem_guest::settings::{address, Network};

    #[test]
    fn a_seed_is_what_cloud_init_looks_for() {
        let path = std::env::temp_dir().join(format!("vshmem-seed-{}", std::process::id()));
        let network = Some(Network { address: address(2), machines: 3 });
        let uplink = Card::from_word("02:00:00:00:00:01,10.1.0.2/16,10.1.0.1,10.1.0.9");
        let (name, launcher) = ("boss".into(), "other".into());
        let settings = Settings { name, network, uplink, launcher, ..Settings::default() };
        write(&path, &settings, ("c-boss", "52:54:00:77:00:03"), &driver::Choice::None).unwrap();
        let mut bytes = Cursor::new(fs::read(&path).unwrap());
        fs::remove_file(&path).unwrap();
        let volume = FileSystem::new(&mut bytes, FsOptions::new()).unwrap();
        assert_eq!(volume.volume_label(), LABEL);
        let read = |name: &str| {
            let mut text = Vec::new();
            volume.root_dir().open_file(name).unwrap().read_to_end(&mut text).unwrap();
            text
        };
        let meta: Value = serde_json::from_slice(&read("meta-data")).unwrap();
        assert_eq!(meta, json!({ "instance-id": "c-boss", "local-hostname": "boss" }));
        let network: Value = serde_json::from_slice(&read("network-config")).unwrap();
        assert_eq!(network["config"][0]["subnets"][0]["address"], "10.77.0.3/24");
        let outside = json!({
            "type": "physical", "name": "eth1", "mac_address": "02:00:00:00:00:01", "subnets": [{
                "type": "static", "address": "10.1.0.2/16", "gateway": "10.1.0.1", "dns_nameservers": ["10.1.0.9"]
            }]
        });
        assert_eq!(network["config"][1], outside);
        let user = String::from_utf8(read("user-data")).unwrap();
        let user: Value = serde_json::from_str(user.strip_prefix("#cloud-config\n").unwrap()).unwrap();
        assert_eq!((&user["hostname"], &user["bootcmd"][0][2]), (&json!("boss"), &json!(START)));
        let line = String::from_utf8(read(SETTINGS)).unwrap();
        assert_eq!(Settings::from_command_line(&line).unwrap(), settings);
        assert!(read(AGENT).starts_with(b"\x7fELF"));
        let links = String::from_utf8(read(LINKS)).unwrap();
        assert!(links.starts_with(&format!("{AGENT} /")), "{links}");
    }

    #[test]
    fn names_on_the_seed_are_those_that_its_script_uses() {
        for name in [LABEL, AGENT] {
            assert!(START.contains(name), "{name}");
        }
    }
}
