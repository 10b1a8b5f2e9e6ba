//! What is mounted below a part is not of it. Skipped where nothing can be mounted: it needs name spaces.

mod common;

use common::{host, number, paths, Scratch};
use std::process::Command;
use vshmem_root::walk::Why;
use vshmem_root::{walk, View};

/// Runs a test of this program again in a mount name space in which these commands were run.
fn with_mounts(it: &Scratch, test: &str, commands: &str) -> bool {
    let script =
        format!("set -e; cd '{}'; {commands}\nexec \"$0\" --exact {test} --nocapture", it.tree("").display());
    let program = std::env::current_exe().unwrap();
    let mut unshare = Command::new("unshare");
    unshare.args(["--mount", "--map-root-user", "sh", "-c", &script]).arg(program);
    let out = unshare.env("MOUNTED_AT", &it.0).output();
    let Ok(out) = out else {
        println!("skipped: there is no unshare");
        return false;
    };
    let said = String::from_utf8_lossy(&out.stdout) + String::from_utf8_lossy(&out.stderr);
    if !said.contains("running 1 test") {
        println!("skipped: nothing can be mounted here: {said}");
        return false;
    }
    assert!(out.status.success(), "{said}");
    true
}

#[test]
fn what_is_mounted_below_a_part_is_not_shown() {
    let Some(at) = std::env::var_os("MOUNTED_AT") else {
        let it = Scratch::new("mounted");
        for name in ["tree/under/hidden", "file", "own", "part/of/it"] {
            it.write(name, b"text");
        }
        let commands = "mount -t tmpfs x tree; mkdir tree/below; echo a >tree/below/a; mkdir tree/bound; \
                        echo b >tree/file; mount --bind own tree/file; mount --bind part tree/bound; \
                        mkdir tree/plain; echo c >tree/plain/c";
        with_mounts(&it, "what_is_mounted_below_a_part_is_not_shown", commands);
        return;
    };
    // All are on one file system, or not: what counts is what is mounted.
    let it = std::path::PathBuf::from(at).join("tree");
    let walked = walk(&[host(&it.join("tree"), "/t", View::Readable)], None).unwrap();
    assert_eq!(paths(&walked.tree), ["/t", "/t/below", "/t/below/a", "/t/bound", "/t/plain", "/t/plain/c"]);
    assert_eq!(walked.left_out.count(Why::Mounted), 2);
    // From above, the tree itself is such a mount.
    let above = walk(&[host(&it, "/", View::Readable)], None).unwrap();
    let mounted = above.tree.node(number(&above.tree, "/tree").unwrap());
    assert!(above.tree.entries(mounted).is_empty() && number(&above.tree, "/part/of/it").is_some());
    // A public view has files that are mounted, as containers have of /etc/hosts, and no directories.
    let public = walk(&[host(&it.join("tree"), "/t", View::Public)], None).unwrap();
    assert_eq!(paths(&public.tree), ["/t", "/t/below", "/t/below/a", "/t/file", "/t/plain", "/t/plain/c"]);
    // Parts that are mounts themselves, a directory and a file.
    let parts = [
        host(&it.join("tree/bound"), "/d", View::Readable),
        host(&it.join("tree/file"), "/f", View::Readable),
    ];
    let parts = walk(&parts, None).unwrap().tree;
    assert_eq!(paths(&parts), ["/d", "/d/of", "/d/of/it", "/f"]);
    let (contents, lines) = common::contents(parts, 4);
    let mut all = vec![0; contents.image().length() as usize];
    contents.read(&mut all, 0).unwrap();
    assert_eq!(lines.lock().unwrap().len(), 0);
}
