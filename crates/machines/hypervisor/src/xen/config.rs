//! The configuration of a domain, for xl.

use crate::state::record::{Machine, Record};
use std::path::{Path, PathBuf};
use vshmem_base::error::{error, Result};
use vshmem_session::share::Share;

/// The name of a machine's domain.
pub fn name_of(record: &Record, machine: &Machine) -> String {
    format!("vshmem-{}-{}", record.name, machine.name)
}

/// The configuration of a domain.
pub struct Config<'a> {
    /// Its name.
    pub name: String,
    /// Its UUID.
    pub uuid: &'a str,
    /// Its kernel, unpacked.
    pub kernel: &'a Path,
    /// Its initramfs.
    pub initramfs: &'a Path,
    /// Its kernel's parameters.
    pub settings: String,
    /// Virtual cores.
    pub cpus: u32,
    /// Memory in bytes.
    pub memory: u64,
    /// The file tree that it sees.
    pub root: PathBuf,
    /// Files of dom0 in that tree, besides the system's.
    pub shares: &'a [Share],
    /// The sockets of its channels.
    pub channels: Vec<PathBuf>,
}

impl Config<'_> {
    /// The text of the configuration, in the format of xl.cfg(5).
    ///
    /// # Errors
    /// A path has characters that have a meaning for xl.
    pub fn text(&self) -> Result<String> {
        let (kernel, initramfs, root) = (plain(self.kernel)?, plain(self.initramfs)?, plain(&self.root)?);
        // Up to 4.17, libxl gives the first channel the number of the domain's console, which makes it
        // unusable.
        let mut channels = vec![channel("unused", &self.root.with_extension("unused"))?];
        for (number, socket) in self.channels.iter().enumerate() {
            channels.push(channel(&format!("vshmem{number}"), socket)?);
        }
        // The domain is never migrated to a host with another clock, so it can use this host's.
        Ok(format!(
            "name = \"{}\"\nuuid = \"{}\"\ntype = \"pvh\"\nkernel = \"{kernel}\"\nramdisk = \"{initramfs}\"\n\
             extra = \"console=hvc0 quiet panic=-1 {}\"\nmemory = {}\nvcpus = {}\n\
             on_poweroff = \"destroy\"\non_reboot = \"destroy\"\non_crash = \"destroy\"\ntsc_mode = \"native\"\n\
             p9 = [ \"tag=root,path={root},security_model=none\" ]\nchannel = [ {} ]\n",
            self.name,
            self.uuid,
            self.settings,
            self.memory >> 20,
            self.cpus,
            channels.join(", "),
        ))
    }
}

fn channel(name: &str, socket: &Path) -> Result<String> {
    let path = plain(socket)?;
    Ok(format!("\"name={name},connection=socket,path={path}\""))
}

/// A path as text.
fn plain(path: &Path) -> Result<&str> {
    let fine = |c: char| c.is_ascii_alphanumeric() || "/._-+~:@%".contains(c);
    let text = path.to_str().filter(|text| text.chars().all(fine));
    text.ok_or_else(|| {
        error!("xl can't be given the path {}", path.display())
            .hint("Only letters, digits and a few signs may be in it: set XDG_RUNTIME_DIR and XDG_CACHE_HOME to such directories.")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(root: &str) -> Result<String> {
        Config {
            name: "vshmem-default-vm0".into(),
            uuid: "u",
            kernel: Path::new("/k"),
            initramfs: Path::new("/i"),
            settings: "vshmem.name=vm0".into(),
            cpus: 2,
            memory: 512 << 20,
            root: root.into(),
            shares: &[],
            channels: vec!["/r/channel0.sock".into()],
        }
        .text()
    }

    #[test]
    fn a_domain_is_described() {
        let text = config("/r/root").expect("plain paths");
        for part in [
            "type = \"pvh\"\n",
            "extra = \"console=hvc0 quiet panic=-1 vshmem.name=vm0\"\nmemory = 512\nvcpus = 2\n",
            "p9 = [ \"tag=root,path=/r/root,security_model=none\" ]\n",
            "\"name=unused,connection=socket,path=/r/root.unused\", \"name=vshmem0,connection=socket,path=/r/channel0.sock\"",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn paths_that_xl_would_misread_are_refused() {
        for bad in ["/a,b", "/a\"b", "/a b", "/a\nb"] {
            let error = config(bad).expect_err(bad).to_string();
            assert!(error.contains("XDG_RUNTIME_DIR"), "{error}");
        }
    }
}
