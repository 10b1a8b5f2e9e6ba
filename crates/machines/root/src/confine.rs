//! What the server gives up before it talks to machines: by Landlock it can read what lies in the sources of
//! the parts, and do nothing else with files, nor connect to anything.

use landlock::{
    path_beneath_rules, Access, AccessFs, AccessNet, BitFlags, CompatLevel, Compatible, Ruleset, RulesetAttr,
    RulesetCreatedAttr, RulesetError, RulesetStatus, Scope, ABI,
};
use std::path::PathBuf;

/// The newest rights that are named here; kernels that know fewer keep those that they know.
const NEWEST: ABI = ABI::V6;

/// Keeps this process, and threads that it starts later, to reading in these directories and files. Where the
/// kernel has no Landlock (5.13) it says so, and nothing is given up.
pub fn to_reading(sources: &[PathBuf], log: &dyn Fn(&str)) {
    match restrict(sources) {
        Ok(RulesetStatus::NotEnforced) => {
            log("the kernel has no Landlock: the server of machines' files is not confined by it")
        }
        Ok(_) => (),
        Err(why) => log(&format!("the server of machines' files is not confined by Landlock: {why}")),
    }
}

fn restrict(sources: &[PathBuf]) -> Result<RulesetStatus, RulesetError> {
    let reading: BitFlags<AccessFs> = AccessFs::ReadFile | AccessFs::ReadDir;
    // A link is shown and not followed.
    let is_own = |source: &&PathBuf| source.symlink_metadata().is_ok_and(|meta| !meta.is_symlink());
    let paths = sources.iter().filter(is_own);
    let status = Ruleset::default()
        .set_compatibility(CompatLevel::BestEffort)
        .handle_access(AccessFs::from_all(NEWEST))?
        .handle_access(AccessNet::from_all(NEWEST))?
        .scope(Scope::from_all(NEWEST))?
        .create()?
        .add_rules(path_beneath_rules(paths, reading))?
        .restrict_self()?;
    Ok(status.ruleset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;
    use std::fs::{self, File};

    #[test]
    fn only_sources_can_be_read() {
        let root = std::env::temp_dir().join(format!("vshmem-confined-{}", std::process::id()));
        fs::create_dir_all(root.join("source")).unwrap();
        for name in ["source/in", "file", "beside"] {
            fs::write(root.join(name), "text").unwrap();
        }
        let sources = [root.join("source"), root.join("file"), PathBuf::new(), root.join("gone")];
        let confined = root.clone();
        // What a thread gives up, others keep.
        let told = std::thread::spawn(move || {
            let told = RefCell::new(Vec::new());
            to_reading(&sources, &|line| told.borrow_mut().push(line.to_string()));
            if !told.borrow().is_empty() {
                return told.into_inner();
            }
            for name in ["source/in", "file"] {
                assert!(File::open(confined.join(name)).is_ok(), "{name}");
            }
            assert!(File::open(confined.join("beside")).is_err());
            assert!(File::open("/etc/passwd").is_err());
            assert!(fs::write(confined.join("source/new"), "").is_err());
            assert!(File::options().write(true).open(confined.join("source/in")).is_err());
            vec![]
        });
        let told = told.join().unwrap();
        fs::remove_dir_all(&root).unwrap();
        if !told.is_empty() {
            println!("skipped: {told:?}");
        }
    }
}
