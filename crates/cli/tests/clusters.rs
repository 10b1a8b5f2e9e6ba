//! Commands on a cluster whose machines died, or are to be started anew. There is no machine: a
//! record tells of some.

use serde_json::{json, Value};
use std::fs;
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output};

/// A user's runtime directory with one cluster, and its pool.
struct Scene {
    home: PathBuf,
    name: String,
}

impl Scene {
    fn new(name: &str) -> Scene {
        let name = format!("{name}{}", std::process::id());
        let home = std::env::temp_dir().join(format!("vshmem-{name}"));
        let scene = Scene { home, name };
        fs::DirBuilder::new().mode(0o700).recursive(true).create(scene.directory().join("vm0")).unwrap();
        let qemu = scene.home.join("qemu-system-x86_64");
        fs::write(&qemu, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&qemu, fs::Permissions::from_mode(0o755)).unwrap();
        let pool = scene.pool_name();
        assert!(scene.run(&["pool", "create", &pool, "--size", "1M"]).status.success());
        scene
    }

    fn directory(&self) -> PathBuf {
        self.home.join("vshmem").join(&self.name)
    }

    fn pool_name(&self) -> String {
        format!("cluster.{}", self.name)
    }

    fn pool(&self) -> PathBuf {
        // SAFETY: takes nothing, and always succeeds.
        let user = unsafe { libc::geteuid() };
        Path::new("/dev/shm").join(format!("vshmem.{user}")).join(self.pool_name())
    }

    /// Writes the cluster down: one machine, which this process is, if any; changed in these fields.
    fn write(&self, machine: Option<&Child>, changes: Value) {
        let started = |child: &Child| {
            let stat = fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
            let (_, fields) = stat.rsplit_once(") ").unwrap();
            fields.split(' ').nth(19).unwrap().parse::<u64>().unwrap()
        };
        let runs = match machine {
            Some(child) => json!({"pid": child.id(), "started": started(child)}),
            // No process has the number 0.
            None => json!({"pid": 0, "started": 0}),
        };
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
        let pool = json!({"name": "default", "path": self.pool(), "size": 1 << 20, "doorbell": false});
        let mut record = json!({
            "version": 2, "name": self.name, "boot": boot.trim(), "starter": null, "accel": "tcg", "kernel": "/no/kernel",
            "pool": self.pool(), "pool_size": 1 << 20, "channels": 1, "since": 1,
            "machines": [{
                "name": "vm0", "index": 0, "runs": runs, "address": null, "cores": [], "cpus": 1, "memory": 1 << 29,
                "first_pools": [pool], "pools": [pool],
            }]
        });
        for (key, value) in changes.as_object().unwrap() {
            let machine = &mut record["machines"][0];
            let of = if machine.get(key).is_some() { machine } else { &mut record };
            of[key] = value.clone();
        }
        fs::write(self.directory().join("cluster.json"), record.to_string()).unwrap();
        fs::write(self.directory().join("vm0/qmp.sock"), "").unwrap();
    }

    fn run(&self, words: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_vshmem"))
            .args(words)
            .env("XDG_RUNTIME_DIR", &self.home)
            .env("VSHMEM_CLUSTER", &self.name)
            .env("PATH", &self.home)
            .env_remove("VSHMEM_POOL")
            .output()
            .unwrap()
    }

    /// The errors that a command prints which fails with this code.
    fn refused(&self, code: i32, words: &[&str]) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    /// All files that there are, and what is in them.
    fn files(&self) -> Vec<(PathBuf, Vec<u8>)> {
        let mut found = vec![(self.pool(), fs::read(self.pool()).unwrap_or_default())];
        let mut left = vec![self.home.clone()];
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(&directory).unwrap().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => left.push(entry.path()),
                    false => found.push((entry.path(), fs::read(entry.path()).unwrap())),
                }
            }
        }
        found.sort();
        found
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.pool());
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// A process that passes for a machine.
fn sleeper() -> Child {
    Command::new("sleep").arg("300").spawn().unwrap()
}

fn still_runs(child: &mut Child) -> bool {
    child.try_wait().unwrap().is_none()
}

#[test]
fn listings_change_nothing() {
    let scene = Scene::new("list");
    for changes in [json!({}), json!({"boot": "earlier"}), json!({"starter": {"pid": 0, "started": 0}})] {
        scene.write(None, changes);
        let before = scene.files();
        for words in [
            &["ps"][..],
            &["ps", "--json"],
            &["pool", "ls"],
            &["top", "--once", "-n", "0.1"],
            &["completions", "bash"],
        ] {
            assert!(scene.run(words).status.success());
            assert!(scene.files() == before, "{words:?} has changed something");
        }
    }
}

#[test]
fn of_the_dead_it_is_said_what_can_be_done() {
    let scene = Scene::new("told");
    let said = |changes| {
        scene.write(None, changes);
        let output = scene.run(&["ps"]);
        assert!(String::from_utf8_lossy(&output.stdout).contains("died"));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let restart = format!("vshmem restart -c {}", scene.name);
    assert!(said(json!({})).contains(&restart));
    let earlier = said(json!({"boot": "earlier"}));
    assert!(!earlier.contains(&restart) && earlier.contains("vshmem down"), "{earlier}");
}

#[test]
fn what_a_file_would_start_is_said_and_not_started() {
    let scene = Scene::new("dry");
    scene.write(None, json!({}));
    let before = scene.files();
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/cluster/boss-and-workers.toml");
    let told = scene.run(&["up", file, "--cluster", "none", "--dry-run"]);
    assert_eq!(
        String::from_utf8_lossy(&told.stdout),
        "make     the pool default: 256M\nmake     the pool work: 64M\n\
         start    boss: 2 cores, 512M of memory, pools default\n\
         start    worker0: 1 core, 256M of memory, pools default, work\n\
         start    worker1: 1 core, 256M of memory, pools default, work\n"
    );
    let said = scene.refused(125, &["up", "--pool-size", "4194304T", "--cluster", "none", "--dry-run"]);
    assert!(said.contains("this host has") && said.contains("--pool-size"), "{said}");
    // The record of this one does not say what was asked for.
    let said = scene.refused(125, &["up", file, "--dry-run"]);
    assert!(said.contains("older vshmem"), "{said}");
    assert!(scene.files() == before);
    assert!(scene.run(&["down"]).status.success());
}

#[test]
fn what_is_no_copy_of_a_system_is_not_examined() {
    let scene = Scene::new("doctor");
    let examined = |root: &Path| scene.refused(125, &["doctor", "--root", root.to_str().unwrap()]);
    let missing = scene.home.join("none");
    assert!(examined(&missing).contains("there is no directory"));
    assert!(examined(&scene.home).contains("neither proc nor sys"));
    fs::create_dir(scene.home.join("proc")).unwrap();
    assert_eq!(scene.run(&["doctor", "--root", scene.home.to_str().unwrap()]).status.code(), Some(0));
}

#[test]
fn the_pool_of_machines_that_died_is_kept() {
    let scene = Scene::new("kept");
    scene.write(None, json!({}));
    let before = scene.files();
    let said = scene.refused(125, &["up"]);
    assert!(said.contains("have died") && said.contains("vshmem restart"), "{said}");
    let said = scene.refused(1, &["pool", "rm", &scene.pool_name()]);
    assert!(said.contains("is in use") && said.contains("--force"), "{said}");
    let said = scene.refused(125, &["restart"]);
    assert!(said.contains("/no/kernel"), "{said}");
    // The lock's file is there for who restarts.
    let is_lock = |path: &Path| path.extension().is_some_and(|end| end == "lock");
    let mut after = scene.files();
    after.retain(|(path, _)| !is_lock(path));
    assert!(after == before);
    assert!(scene.run(&["down"]).status.success());
    assert!(!scene.pool().exists() && !scene.directory().exists());
}

#[test]
fn what_can_be_known_to_fail_ends_no_machine() {
    let scene = Scene::new("checked");
    let mut machine = sleeper();
    for (changes, why) in [
        (json!({}), "/no/kernel"),
        (json!({"memory": 1u64 << 60}), "of memory"),
        (json!({"shares": [{"path": "/no/share", "writable": false}]}), "/no/share"),
        (
            json!({"first_pools": [{"name": "work", "path": "/no/pool", "size": 1 << 20, "doorbell": false}]}),
            "/no/pool",
        ),
        (json!({"cpus": 0}), "older vshmem"),
    ] {
        scene.write(Some(&machine), changes);
        let said = scene.refused(125, &["restart", "vm0"]);
        assert!(said.contains(why), "{said}");
        assert!(still_runs(&mut machine), "{why}");
    }
    scene.write(Some(&machine), json!({}));
    let said = scene.refused(125, &["restart"]);
    assert!(said.contains("no machine") && still_runs(&mut machine), "{said}");
    fs::remove_file(scene.home.join("qemu-system-x86_64")).unwrap();
    let said = scene.refused(125, &["restart", "vm0"]);
    assert!(said.contains("on the PATH") && still_runs(&mut machine), "{said}");
    machine.kill().unwrap();
    machine.wait().unwrap();
}

#[test]
fn a_pool_in_use_is_removed_by_force_only() {
    let scene = Scene::new("used");
    let pool = scene.pool_name();
    let mut machine = sleeper();
    scene.write(Some(&machine), json!({}));
    let said = scene.refused(1, &["pool", "rm", &pool]);
    assert!(said.contains("vm0 of the cluster"), "{said}");
    assert!(scene.pool().exists());
    // Without its record, as from another runtime directory.
    fs::remove_file(scene.directory().join("cluster.json")).unwrap();
    machine.kill().unwrap();
    machine.wait().unwrap();
    assert!(scene.run(&["pool", "rm", &pool]).status.success());
    assert!(scene.run(&["pool", "create", &pool, "--size", "1M"]).status.success());
    scene.write(None, json!({}));
    assert!(scene.run(&["pool", "rm", "--force", &pool]).status.success());
    assert!(!scene.pool().exists());
}
