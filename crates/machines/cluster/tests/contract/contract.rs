//! The contract of a launcher: what `vshmem` promises of clusters, whatever starts their machines. The checks
//! are generic: what they ask of a launcher, a [`Subject`] says.
//!
//! Each check starts a cluster of its own in a private runtime directory, and leaves nothing.

use rustix::process::{kill_process, Pid, Signal};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitCode, Output, Stdio};
use std::time::{Duration, Instant};
use vshmem_base::directories::{cluster_directory, private_directory, runtime_path};
use vshmem_base::error::{error, Explain, Result};
use vshmem_base::interrupt;
use vshmem_base::lock::{try_lock_cluster, wait_for_lock};
use vshmem_base::user::Identity;
use vshmem_cluster::description::file::File;
use vshmem_cluster::host::cluster::down;
use vshmem_cluster::host::repair::repair;
use vshmem_cluster::host::restart::restart;
use vshmem_cluster::host::templates;
use vshmem_cluster::host::up::{up, UpOptions};
use vshmem_hypervisor::launcher::options::ClusterOptions;
use vshmem_hypervisor::launcher::table;
use vshmem_hypervisor::launcher::target::Target;
use vshmem_hypervisor::launcher::traits::Launcher;
use vshmem_hypervisor::shared::pool;
use vshmem_hypervisor::state::machine::{find, state, MachineState};
use vshmem_hypervisor::state::record::Record;
use vshmem_inspect::host_pool::HostPool;
use vshmem_inspect::pools::{self, Form};
use vshmem_session::commands::job::Job;
use vshmem_session::commands::location::Location;
use vshmem_session::commands::run::{run as run_jobs, RunOptions};

/// A launcher that is to keep the contract.
pub struct Subject {
    /// The line of a cluster's description that chooses it.
    pub description: &'static str,
    /// A shell's command that succeeds in a machine which has the pool of this name.
    pub has_pool: fn(&str) -> String,
    /// Time that machines may take to boot, to take a pool and to let go of it.
    pub timeout: Duration,
}

/// A check, and what it shows.
type Check = (&'static str, fn(&Cluster) -> Result<()>);

const CHECKS: &[Check] = &[
    ("up: one machine", one_machine),
    ("up: several machines", several_machines),
    ("templates, if it has some", templates),
    ("exec: output, exit code, signal", commands),
    ("grant, revoke", grants),
    ("restart", restarts),
    ("repair", repairs),
    ("kill -9 of a machine that runs a command", machine_killed),
    ("kill -9 of a machine that is started", starting_machine_killed),
    ("kill -9 of up", up_killed),
];

/// Makes all checks and prints the verdicts. Returns whether none failed.
pub fn run(subject: &Subject) -> bool {
    let base = std::env::temp_dir().join(format!("vshmem-contract-{}", std::process::id()));
    private_directory(&base).expect("a new directory");
    std::env::set_var("XDG_RUNTIME_DIR", &base);
    let cluster = Cluster { subject, name: format!("contract{}", std::process::id()), base: base.clone() };
    let mut good = true;
    for (name, check) in CHECKS {
        let begun = Instant::now();
        let done = check(&cluster).and_then(|()| cluster.ends());
        let took = begun.elapsed().as_secs_f64();
        match &done {
            Ok(()) => println!("  ok    {name} ({took:.1} s)"),
            Err(why) => println!("  FAIL  {name}: {why}"),
        }
        if done.is_err() {
            let _ = down(None);
            good = false;
        }
    }
    let _ = fs::remove_dir_all(base);
    good
}

/// Executes a command that the checks start this program for: `up NAME COUNT`, `exec NAME MACHINE SCRIPT`.
pub fn command(subject: &Subject, words: &[&str]) -> Option<ExitCode> {
    let done = match *words {
        ["up", name, count] => {
            let cluster = Cluster { subject, name: name.into(), base: PathBuf::new() };
            cluster.up(count.parse().expect("a number")).map(|_| 0)
        }
        ["exec", name, machine, script] => exec(name, machine, script),
        _ => return None,
    };
    Some(ExitCode::from(done.unwrap_or_else(|why| {
        eprintln!("{why}");
        why.exit_code()
    })))
}

fn exec(cluster: &str, machine: &str, script: &str) -> Result<u8> {
    let (record, machines) = find(cluster, &[machine.into()])?;
    let location = Location::Machine(table::location(&record, &machines[0]));
    // By which its processes are found.
    let mark = std::env::var_os("XDG_RUNTIME_DIR").map(|base| ("CONTRACT".into(), base));
    let changes: Vec<_> = mark.into_iter().collect();
    let mut job = Job::new(location, machine.into(), &changes, Some(Path::new("/")), Identity::current());
    job.request.argv = ["sh", "-c", script].map(Into::into).to_vec();
    run_jobs(&[job], RunOptions { prefix: false, keep_going: true, insist: true, silent: false })
}

/// An error unless this is so.
fn check(good: bool, what: &str) -> Result<()> {
    good.then_some(()).ok_or_else(|| error!("not so: {what}"))
}

/// A cluster of the subject's.
struct Cluster<'a> {
    subject: &'a Subject,
    name: String,
    /// The private directory.
    base: PathBuf,
}

impl Cluster<'_> {
    /// The launcher and the options of this cluster with so many machines.
    fn options(&self, machines: usize) -> Result<(&'static dyn Launcher, ClusterOptions)> {
        let (description, name) = (self.subject.description, &self.name);
        let text =
            format!("{description}\nname = '{name}'\n[[machines]]\ncount = {machines}\nmemory = '128M'\n");
        let file = File::parse(name.clone(), text, Path::new("/"))?;
        file.description.resolve().map_err(|fault| file.explain(fault))
    }

    fn up(&self, machines: usize) -> Result<Record> {
        let (launcher, options) = self.options(machines)?;
        up(launcher, &options, UpOptions { timeout: self.subject.timeout, overcommit: true }, &mut |_| ())
    }

    /// This program with these words and the cluster's name.
    fn program(&self, word: &str, words: &[&str]) -> Command {
        let mut command = Command::new("/proc/self/exe");
        command.arg(word).arg(&self.name).args(words).stdin(Stdio::null());
        command
    }

    /// `up` in a process of its own.
    fn begin_up(&self, machines: usize) -> Result<Child> {
        let mut command = self.program("up", &[&machines.to_string()]);
        command.stderr(Stdio::null()).spawn().explain(|| "could not start up".into())
    }

    fn exec(&self, machine: &str, script: &str) -> Result<Output> {
        self.program("exec", &[machine, script]).output().explain(|| "could not start exec".into())
    }

    fn has_pool(&self, machine: &str, pool: &str) -> Result<bool> {
        Ok(self.exec(machine, &(self.subject.has_pool)(pool))?.status.success())
    }

    fn record(&self) -> Result<Record> {
        Record::read(&self.name)?.ok_or_else(|| error!("there is no record of {}", self.name))
    }

    /// The names of the pools that a machine has, as the record says.
    fn pools(&self, index: usize) -> Result<Vec<String>> {
        Ok(self.record()?.machines[index].pools.iter().map(|pool| pool.name.clone()).collect())
    }

    /// The number of machines that the record says to have been started.
    fn started(&self) -> usize {
        let record = self.record().ok();
        record.map_or(0, |record| record.machines.iter().filter(|machine| machine.runs.is_some()).count())
    }

    /// Kills a machine, and waits until it is dead.
    fn kill(&self, index: usize) -> Result<()> {
        let record = self.record()?;
        let running = record.machines[index].runs.as_ref().ok_or_else(|| error!("it was not started"))?;
        match running.pid().and_then(Pid::from_raw) {
            Some(pid) => drop(kill_process(pid, Signal::KILL)),
            None => running.end(Duration::ZERO),
        }
        let dead = || Ok((!running.alive()).then_some(()));
        interrupt::wait_for(Duration::from_secs(5), dead)?.ok_or_else(|| error!("it does not die"))
    }

    fn states(&self) -> Result<Vec<MachineState>> {
        let record = self.record()?;
        Ok(record.machines.iter().map(|machine| state(&record, machine)).collect())
    }

    fn restart(&self, names: &[&str]) -> Result<()> {
        let names: Vec<String> = names.iter().map(|name| (*name).into()).collect();
        restart(&self.name, &names, self.subject.timeout, &mut |_| ())
    }

    /// A pool of this host.
    fn make_pool(&self, name: &str) -> Result<HostPool> {
        let path = self.base.join(name).to_string_lossy().into_owned();
        let _ = fs::remove_file(&path);
        pools::create(&path, vshmem_pool::MIN_POOL, 0o600, &[], Form { head: false, align: 0 })?;
        HostPool::find(&path)
    }

    fn target(&self, machine: &str) -> Result<Target> {
        Target::find(&self.name, machine)
    }

    /// Ends it, if it is there; an error if anything is left of it.
    fn ends(&self) -> Result<()> {
        down(None)?;
        self.nothing_left()
    }

    fn nothing_left(&self) -> Result<()> {
        let in_runtime = fs::read_dir(runtime_path()).into_iter().flatten().flatten();
        let left: Vec<_> = in_runtime.map(|entry| entry.file_name()).collect();
        check(left.is_empty(), &format!("the runtime directory is empty ({left:?})"))?;
        let pool = pool::path(&pool::own(&self.name));
        check(!pool.exists(), "the cluster's pool is gone")?;
        let end = Instant::now() + Duration::from_secs(2);
        while !self.processes().is_empty() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(10));
        }
        let left = self.processes();
        check(left.is_empty(), &format!("no process is left ({left:?})"))
    }

    /// The processes that were started here, and run.
    fn processes(&self) -> Vec<u32> {
        let all = fs::read_dir("/proc").into_iter().flatten().flatten();
        let pids = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let base = self.base.to_string_lossy();
        let ours = |pid: &u32| {
            // That of one that has ended is empty.
            let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
            *pid != std::process::id() && String::from_utf8_lossy(&environment).contains(&*base)
        };
        pids.filter(ours).collect()
    }
}

fn one_machine(cluster: &Cluster) -> Result<()> {
    let record = cluster.up(1)?;
    check(cluster.states()? == [MachineState::Running], "it runs")?;
    check(record.starter.is_none() && record.pool.exists(), "its record is whole, and it has a pool")?;
    let named = cluster.exec("vm0", "uname -n")?;
    check(named.stdout == b"vm0\n", &format!("it is called vm0 ({named:?})"))?;
    down(Some(&cluster.name))?;
    check(!record.pool.exists(), "its pool is gone")
}

/// A template is made once, and machines thaw from it; or the launcher has none, and says so.
fn templates(cluster: &Cluster) -> Result<()> {
    let (launcher, options) = cluster.options(2)?;
    let make = || templates::make(launcher, &options, &mut |_| ());
    let made = match make() {
        Err(why) if why.exit_code() == 1 && why.to_string().contains("can't thaw") => return Ok(()),
        made => made?,
    };
    check(made.len() == 1, "two machines of one kind have one template")?;
    check(make()? == made, "a template that there is already is not made again")?;
    let mut said = String::new();
    let up_options = UpOptions { timeout: cluster.subject.timeout, overcommit: true };
    up(launcher, &options, up_options, &mut |progress| said += &format!("{progress:?}\n"))?;
    check(!said.contains("template"), &format!("machines thaw from it without a word: {said}"))?;
    let ids = ["vm0", "vm1"].map(|vm| cluster.exec(vm, "cat /proc/sys/kernel/random/boot_id"));
    let [one, other] = ids.map(|id| id.map(|output| output.stdout));
    check(one? != other?, "two machines of one template are two machines")
}

fn several_machines(cluster: &Cluster) -> Result<()> {
    let record = cluster.up(3)?;
    check(cluster.states()? == [MachineState::Running; 3], "they run")?;
    let pool = table::of(&record).pool_name(&cluster.name);
    for machine in &record.machines {
        let named = cluster.exec(&machine.name, "uname -n")?;
        check(named.stdout == format!("{}\n", machine.name).as_bytes(), "each has its name")?;
        check(cluster.has_pool(&machine.name, &pool)?, "each has the cluster's pool")?;
    }
    check(cluster.up(3).is_err(), "what is up is not started again")?;
    check(cluster.states()? == [MachineState::Running; 3], "it runs on")
}

fn commands(cluster: &Cluster) -> Result<()> {
    cluster.up(1)?;
    let done = cluster.exec("vm0", "echo out; echo err >&2; exit 7")?;
    check(done.stdout == b"out\n" && done.stderr == b"err\n", "both outputs come")?;
    check(done.status.code() == Some(7), "the exit code comes")?;
    let done = cluster.exec("vm0", "kill -9 $$")?;
    check(done.status.code() == Some(128 + 9), "a signal comes")?;
    let done = cluster.exec("vm0", "head -c 1000000 /dev/zero")?;
    check(done.stdout == vec![0; 1_000_000], "much output comes whole")?;
    check(!cluster.exec("vm1", "true")?.status.success(), "there is no other machine")
}

fn grants(cluster: &Cluster) -> Result<()> {
    let record = cluster.up(2)?;
    let pool = cluster.make_pool("work")?;
    let (own, timeout) = (table::of(&record).pool_name(&cluster.name), cluster.subject.timeout);
    for before in [false, true] {
        let granted = cluster.target("vm0")?.grant(&pool, timeout)?;
        check(granted.name == "work" && granted.before == before, "it is granted once")?;
        check(granted.usable == Ok(()), "it is usable")?;
    }
    check(cluster.pools(0)? == [own.as_str(), "work"], "the record has it")?;
    check(cluster.pools(1)? == [own.as_str()], "and that of another machine does not")?;
    check(cluster.has_pool("vm0", "work")?, "it is in the machine")?;
    check(!cluster.has_pool("vm1", "work")?, "and in no other")?;
    check(cluster.target("vm0")?.revoke("work", timeout)? == "work", "it is revoked")?;
    check(cluster.pools(0)? == [own.as_str()], "the record does not have it")?;
    check(!cluster.has_pool("vm0", "work")?, "it is not in the machine")?;
    let again = cluster.target("vm0")?.revoke("work", timeout);
    check(again.is_err_and(|why| why.exit_code() == 1), "what it does not have is not revoked")?;
    let named = pool.with_name(Some("mine"))?;
    cluster.target("vm1")?.grant(&named, timeout)?;
    check(cluster.has_pool("vm1", "mine")?, "it has another name in another machine")?;
    cluster.target("vm1")?.revoke(&named.path.to_string_lossy(), timeout)?;
    check(!cluster.has_pool("vm1", "mine")?, "it is revoked by its path, too")?;
    cluster.target("vm1")?.power_off()?;
    check(cluster.states()? == [MachineState::Running, MachineState::Died], "a machine is turned off")?;
    check(cluster.target("vm1").is_err(), "one that died is granted nothing")
}

fn restarts(cluster: &Cluster) -> Result<()> {
    let before = cluster.up(2)?;
    cluster.target("vm0")?.grant(&cluster.make_pool("work")?, cluster.subject.timeout)?;
    check(cluster.restart(&[]).is_err(), "none has died")?;
    cluster.kill(0)?;
    check(cluster.states()? == [MachineState::Died, MachineState::Running], "one is dead")?;
    cluster.restart(&[])?;
    check(cluster.exec("vm0", "true")?.status.success(), "it takes commands again")?;
    let own = table::of(&before).pool_name(&cluster.name);
    check(cluster.pools(0)? == [own.as_str()], "what it was granted is lost")?;
    check(cluster.has_pool("vm0", &own)? && !cluster.has_pool("vm0", "work")?, "inside as well")?;
    cluster.restart(&["vm0"])?;
    check(cluster.states()? == [MachineState::Running; 2], "one that runs is restarted, too")?;
    let after = cluster.record()?;
    check(before.machines[0].runs != after.machines[0].runs, "it is another machine")?;
    check(before.machines[1].runs == after.machines[1].runs, "the other one has run on")
}

fn repairs(cluster: &Cluster) -> Result<()> {
    cluster.up(2)?;
    cluster.target("vm1")?.grant(&cluster.make_pool("work")?, cluster.subject.timeout)?;
    let repair = || repair(&cluster.name, cluster.subject.timeout, &mut |_| ());
    check(repair()?.is_empty(), "nothing is to be repaired")?;
    cluster.kill(1)?;
    check(repair()? == ["vm1"], "what died is")?;
    check(cluster.has_pool("vm1", "work")?, "it has what it was granted")?;
    (0..2).try_for_each(|index| cluster.kill(index))?;
    check(repair()? == ["vm0", "vm1"], "all are")?;
    check(cluster.states()? == [MachineState::Running; 2], "they run")
}

fn machine_killed(cluster: &Cluster) -> Result<()> {
    cluster.up(1)?;
    let mut command = cluster.program("exec", &["vm0", "echo begun; sleep 1000"]);
    let command = command.stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut command = command.explain(|| "could not start exec".into())?;
    let mut begun = [0; 6];
    std::io::Read::read_exact(command.stdout.as_mut().expect("a pipe"), &mut begun)
        .explain(|| "the command has not begun".into())?;
    cluster.kill(0)?;
    let ended = command.wait().explain(|| "waiting".into())?;
    check(!ended.success(), "the command fails with its machine")
}

/// Waits until it is so, or `up` has ended.
fn until(up: &mut Child, is_so: impl Fn() -> bool) {
    while matches!(up.try_wait(), Ok(None)) && !is_so() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

fn starting_machine_killed(cluster: &Cluster) -> Result<()> {
    for count in [1, 2] {
        let mut up = cluster.begin_up(2)?;
        until(&mut up, || cluster.started() >= count);
        let _ = cluster.kill(0);
        let ended = up.wait().explain(|| "waiting".into())?;
        match ended.success() {
            // It died right after it had come up.
            true => check(cluster.states()?[0] == MachineState::Died, "it is dead")?,
            false => cluster.nothing_left()?,
        }
        cluster.ends()?;
    }
    Ok(())
}

fn up_killed(cluster: &Cluster) -> Result<()> {
    let directory = cluster_directory(&cluster.name)?;
    let stages: [(&str, &dyn Fn() -> bool); 5] = [
        ("its directory is made", &|| directory.exists()),
        ("its record is written", &|| cluster.record().is_ok()),
        ("a machine is started", &|| cluster.started() >= 1),
        ("both machines are started", &|| cluster.started() == 2),
        ("it has ended", &|| false),
    ];
    for (stage, is_so) in stages {
        let mut up = cluster.begin_up(2)?;
        until(&mut up, is_so);
        let _ = up.kill();
        let _ = up.wait();
        // A child of it holds the lock until it begins its program.
        drop(wait_for_lock(&cluster.name, || try_lock_cluster(&cluster.name))?);
        cluster.ends().map_err(|why| why.about(&format!("killed when {stage}")))?;
    }
    cluster.up(1).map(drop)
}
