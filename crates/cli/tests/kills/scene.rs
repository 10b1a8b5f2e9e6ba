//! A user whose host has QEMU and a kernel, and what is left of what this user did.

use crate::qemu;
use crate::traced::{self, Ended};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{symlink, DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Time that things may take to be gone once they were ended.
const TIMEOUT: Duration = Duration::from_secs(30);
/// The version of the kernel.
const VERSION: &str = "6.1.0-none";

/// A user's directories.
pub struct Scene {
    home: PathBuf,
}

impl Scene {
    /// A scene that has nothing yet, and this program for QEMU.
    pub fn new() -> Scene {
        // All processes that lose theirs become children of this one, so that none is missed.
        // SAFETY: plain values.
        unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) };
        let home = std::env::temp_dir().join(format!("vk{}", std::process::id()));
        for directory in ["bin", "cache", "run", "tmp", "kernel/kernel"] {
            fs::DirBuilder::new().mode(0o700).recursive(true).create(home.join(directory)).unwrap();
        }
        for directory in [".", "bin", "kernel"] {
            fs::set_permissions(home.join(directory), PermissionsExt::from_mode(0o755)).unwrap();
        }
        symlink(std::env::current_exe().unwrap(), home.join("bin").join(qemu::NAME)).unwrap();
        fs::write(home.join("kernel/vmlinuz"), kernel()).unwrap();
        let modules = include_str!("../../../../images/modules.txt").lines();
        let names = modules.filter_map(|line| line.trim_start_matches(['?', '+']).split_whitespace().next());
        let built_in: String = names.map(|name| format!("kernel/{name}.ko\n")).collect();
        fs::write(home.join("kernel/modules.builtin"), built_in).unwrap();
        Scene { home }
    }

    /// The path of a file of this user's.
    pub fn path(&self, name: &str) -> PathBuf {
        self.home.join(name)
    }

    /// Writes the file that describes the cluster; returns its path. Of the stand-in for QEMU no template can
    /// be made.
    pub fn describe(&self, text: &str) -> String {
        let path = self.path("cluster.toml");
        let kernel = self.path("kernel/vmlinuz");
        fs::write(
            &path,
            format!("kernel = {kernel:?}\naccel = \"tcg\"\ndriver = \"none\"\ndoorbell = true\ncold = true\n{text}"),
        )
        .unwrap();
        path.to_string_lossy().into_owned()
    }

    fn command(&self, words: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_vshmem"));
        let private = ["HOME", "XDG_CACHE_HOME", "XDG_RUNTIME_DIR", "TMPDIR", "PATH"].into_iter();
        let places = ["", "cache", "run", "tmp", "bin"].map(|name| self.path(name));
        command.args(words).stdin(Stdio::null()).env_clear().envs(private.zip(places));
        command.env("VSHMEM_CLUSTER", self.cluster());
        command
    }

    /// The cluster's name, which no other user of this host has.
    pub fn cluster(&self) -> String {
        format!("k{}", std::process::id())
    }

    /// Runs a command, whatever comes of it.
    pub fn run(&self, words: &[&str]) -> Output {
        self.command(words).output().unwrap()
    }

    /// Runs a command, which works; returns what it prints.
    pub fn works(&self, words: &[&str], when: &str) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{when}: {words:?} fails: {said}{}", self.listing());
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Runs a command, which fails with this code; returns why.
    pub fn fails(&self, words: &[&str], code: i32) -> String {
        let output = self.run(words);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        said
    }

    /// Runs a command that is killed at its step of this number, if it gets there.
    pub fn killed(&self, words: &[&str], step: Option<usize>) -> Ended {
        let mut command = self.command(words);
        traced::run(command.stdout(Stdio::null()).stderr(Stdio::null()), step)
    }

    /// The time that a command, which works, has had of processors.
    #[expect(clippy::zombie_processes, reason = "it is waited for by wait4, which tells the time")]
    pub fn processor_time(&self, words: &[&str]) -> Duration {
        let child = self.command(words).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut status = 0;
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: both are live and may be written.
        let waited = unsafe { libc::wait4(child.id() as libc::pid_t, &mut status, 0, usage.as_mut_ptr()) };
        assert!(waited > 0 && status == 0, "{words:?} fails: {status}");
        // SAFETY: all zeros is a valid value, and the kernel has filled it in.
        let usage = unsafe { usage.assume_init() };
        let spent = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
        spent(usage.ru_utime) + spent(usage.ru_stime)
    }

    /// Has a script pass for QEMU; returns where the right one is.
    pub fn replace_qemu(&self, script: &str) -> PathBuf {
        let path = self.path("bin").join(qemu::NAME);
        let before = path.canonicalize().unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
        before
    }

    /// Has a program pass for QEMU again.
    pub fn restore_qemu(&self, program: &Path) {
        let path = self.path("bin").join(qemu::NAME);
        fs::remove_file(&path).unwrap();
        symlink(program, path).unwrap();
    }

    /// The names of the cluster's machines, each with its state.
    pub fn machines(&self) -> Vec<(String, String)> {
        let told: serde_json::Value =
            serde_json::from_str(&self.works(&["ps", "--json"], "listing")).unwrap();
        let machines = told["clusters"][0]["machines"].as_array().cloned().unwrap_or_default();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        machines.iter().map(|machine| (text(&machine["name"]), text(&machine["state"]))).collect()
    }

    fn record(&self) -> serde_json::Value {
        let record = fs::read(self.path("run/vshmem").join(self.cluster()).join("cluster.json")).unwrap();
        serde_json::from_slice(&record).unwrap()
    }

    /// Whether the cluster is recorded as one whose start has ended.
    pub fn is_started(&self) -> bool {
        self.record()["starter"].is_null()
    }

    /// The process that runs a machine.
    pub fn process(&self, machine: &str) -> libc::pid_t {
        let record = self.record();
        let mut machines = record["machines"].as_array().unwrap().iter();
        let found = machines.find(|it| it["name"] == machine).expect("a machine of this name");
        found["runs"]["pid"].as_i64().unwrap() as libc::pid_t
    }

    /// The command line of a machine.
    pub fn started(&self, machine: &str) -> String {
        let words = fs::read(format!("/proc/{}/cmdline", self.process(machine))).unwrap();
        String::from_utf8_lossy(&words).replace('\0', " ")
    }

    /// Waits until nothing is left: no process, no file, no pool, no mount.
    pub fn nothing_is_left(&self, when: &str) {
        let begun = Instant::now();
        loop {
            let left = self.left();
            if left.is_empty() {
                return;
            }
            assert!(begun.elapsed() < TIMEOUT, "{when}: left are {left:#?}");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn left(&self) -> BTreeSet<String> {
        let mut left: BTreeSet<String> = children();
        for directory in ["run", "tmp"] {
            left.extend(below(&self.path(directory)));
        }
        // SAFETY: takes nothing, and always succeeds.
        let user = unsafe { libc::geteuid() };
        let pools = below(&Path::new("/dev/shm").join(format!("vshmem.{user}")));
        left.extend(pools.into_iter().filter(|pool| pool.contains(&self.cluster())));
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap();
        let home = self.home.to_string_lossy();
        left.extend(mounts.lines().filter(|line| line.contains(&*home)).map(str::to_owned));
        left
    }

    /// The machines and files of the scene, for the message of a failure.
    fn listing(&self) -> String {
        format!("\nThere are: {:#?}", self.left())
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        self.run(&["down", "--all"]);
        let _ = fs::remove_dir_all(&self.home);
    }
}

/// A stand-in for a kernel: the head of an image.
fn kernel() -> Vec<u8> {
    let mut image = vec![0; 0x1000];
    image[0x202..0x206].copy_from_slice(b"HdrS");
    image[0x20e..0x210].copy_from_slice(&0x100u16.to_le_bytes());
    image[0x300..0x300 + VERSION.len()].copy_from_slice(VERSION.as_bytes());
    image
}

/// The paths of all files below a directory.
fn below(directory: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        found.push(entry.path().to_string_lossy().into_owned());
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            found.extend(below(&entry.path()));
        }
    }
    found
}

/// The command lines of this process's children, once those that have ended are waited for.
fn children() -> BTreeSet<String> {
    // SAFETY: the status may be left out.
    while unsafe { libc::waitpid(-1, std::ptr::null_mut(), libc::WNOHANG | libc::__WALL) } > 0 {}
    let tasks = fs::read_dir("/proc/self/task").unwrap().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: String = lists.collect();
    let line = |pid: &str| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let line: String = String::from_utf8_lossy(&line).replace('\0', " ").chars().take(80).collect();
        format!("process {pid}: {line}")
    };
    lists.split_whitespace().map(line).collect()
}
