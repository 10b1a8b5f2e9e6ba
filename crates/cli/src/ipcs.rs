//! The commands `vshmem ipcs` and `vshmem ipcrm`.

use crate::complete::values;
use crate::json::print_document;
use crate::output::print;
use crate::size;
use crate::table::{member_row, or_dash, waiter_row, Table, MEMBER_HEADING, WAITER_HEADING};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::collections::HashMap;
use std::fmt::Display;
use vshmem_base::{user, Error, Result};
use vshmem_inspect::contents::{contents, remove, Contents, Kind, Target};
use vshmem_inspect::pools::{find, name_of};
use vshmem_inspect::processes::Process;
use vshmem_inspect::sample::{Object, Queue, Segment, Set};

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem ipcs                              all your pools
  vshmem ipcs --pool cluster.default       the pool of the machines that vshmem up started
  vshmem ipcs -q                           message queues alone
  vshmem ipcs --waiters                    also kernels, processes and waiting threads
  vshmem exec vm0 -- vshmem ipcs           the same, as seen from a machine")]
pub struct Ipcs {
    /// Only this pool: a name, or a path with a slash
    #[arg(long, short, value_name = "POOL", env = "VSHMEM_POOL", add = values::pools())]
    pub pool: Option<String>,
    /// Only shared memory segments, or those kinds that are named
    #[arg(long, short = 'm')]
    pub shmems: bool,
    /// Only message queues
    #[arg(long, short)]
    pub queues: bool,
    /// Only semaphore sets
    #[arg(long, short)]
    pub semaphores: bool,
    /// Also list kernels, processes and waiting threads
    #[arg(long, short)]
    pub waiters: bool,
    /// Print JSON, with all of that
    #[arg(long)]
    pub json: bool,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem ipcrm -q 1073872896
  vshmem ipcrm --pool work -M 0x1234 -S 0x1234
  vshmem ipcrm --pool cluster.default --all")]
pub struct Ipcrm {
    /// The pool: a name, or a path with a slash; not needed if you have only one
    #[arg(long, short, value_name = "POOL", env = "VSHMEM_POOL", add = values::pools())]
    pub pool: Option<String>,
    /// Remove the segment with this id
    #[arg(long, short = 'm', value_name = "ID")]
    pub shmem_id: Vec<i32>,
    /// Remove the segment with this key
    #[arg(long, short = 'M', value_name = "KEY", value_parser = key)]
    pub shmem_key: Vec<i32>,
    /// Remove the semaphore set with this id
    #[arg(long, short = 's', value_name = "ID")]
    pub semaphore_id: Vec<i32>,
    /// Remove the semaphore set with this key
    #[arg(long, short = 'S', value_name = "KEY", value_parser = key)]
    pub semaphore_key: Vec<i32>,
    /// Remove the queue with this id
    #[arg(long, short = 'q', value_name = "ID")]
    pub queue_id: Vec<i32>,
    /// Remove the queue with this key
    #[arg(long, short = 'Q', value_name = "KEY", value_parser = key)]
    pub queue_key: Vec<i32>,
    /// Remove everything in the pool
    #[arg(long, short)]
    pub all: bool,
}

/// A key, decimal, or hexadecimal after `0x`.
fn key(text: &str) -> std::result::Result<i32, String> {
    let number = match text.strip_prefix("0x") {
        Some(hex) => u32::from_str_radix(hex, 16).ok().map(|key| key as i32),
        None => text.parse().ok(),
    };
    number.ok_or_else(|| "a key is a decimal number, or a hexadecimal one after 0x".into())
}

/// Lists the IPC objects in pools.
pub fn ipcs(ipcs: &Ipcs) -> Result<u8> {
    let mut seen = Vec::new();
    let mut code = 0;
    for pool in find(ipcs.pool.as_deref())? {
        match contents(&pool) {
            Ok(found) => {
                if !found.clean {
                    tell!("vshmem: {}", left_unclean(&found.pool));
                }
                seen.push(found);
            }
            Err(error) if ipcs.pool.is_some() => return Err(error),
            Err(error) => {
                tell!("vshmem: {error}");
                code = 1;
            }
        }
    }
    if ipcs.json {
        print_document(All { pools: &seen })?;
    } else {
        let text: Vec<_> = seen.iter().map(|seen| describe(seen, ipcs)).collect();
        print(&text.join("\n"))?;
        if seen.is_empty() && code == 0 {
            tell!("You have no pools. They are made at first use, by vshmem pool create, or by vshmem up.");
        }
    }
    Ok(code)
}

fn left_unclean(pool: &str) -> String {
    format!(
        "a process that uses the pool {pool} holds a lock and makes no progress, perhaps in a paused machine; \
         the list may include what dead processes have left"
    )
}

/// A pool's contents; a kind of which there is nothing has no table.
fn describe(contents: &Contents, ipcs: &Ipcs) -> String {
    let kernels = contents.members.iter().map(|member| match member.alive {
        true => member.name.clone(),
        false => format!("{}, which is dead", member.name),
    });
    let kernels = kernels.collect::<Vec<_>>().join("; ");
    let tables = objects(contents, ipcs);
    let empty = if tables.iter().all(|(_, table)| table.len() == 1) { ": nothing" } else { "" };
    let mut out = format!("Pool {} (kernels: {kernels}){empty}\n", contents.pool);
    for (title, table) in tables.into_iter().chain(if ipcs.waiters { users(contents) } else { vec![] }) {
        if table.len() > 1 {
            out += &format!("\n{title}\n{}", table.layout());
        }
    }
    out
}

type Titled = (String, Table);

/// The tables of IPC objects, of the kinds that are asked for.
fn objects(contents: &Contents, ipcs: &Ipcs) -> Vec<Titled> {
    let all = !(ipcs.shmems || ipcs.queues || ipcs.semaphores);
    let mut owners = Owners::default();
    let mut out = Vec::new();
    if all || ipcs.shmems {
        let mut table = Table::new("KEY  ID  OWNER  PERMS  BYTES  NATTCH  CREATOR  LAST");
        for Segment { object, size, attached, creator, last, removed } in &contents.segments {
            let own: [&dyn Display; 4] = [size, attached, &label(creator), &label(last)];
            object_row(&mut table, object, *removed, &mut owners, &own);
        }
        out.push((segments_title(contents), table));
    }
    if all || ipcs.semaphores {
        let mut table = Table::new("KEY  ID  OWNER  PERMS  NSEMS  WAITING");
        for Set { object, count } in &contents.sets {
            object_row(&mut table, object, false, &mut owners, &[count, &object.waiting]);
        }
        out.push(("Semaphore sets".into(), table));
    }
    if all || ipcs.queues {
        let mut table = Table::new("KEY  ID  OWNER  PERMS  BYTES  MSGS  SENDER  RECEIVER  WAITING");
        for Queue { object, bytes, messages, sender, receiver, .. } in &contents.queues {
            let own: [&dyn Display; 5] = [bytes, messages, &label(sender), &label(receiver), &object.waiting];
            object_row(&mut table, object, false, &mut owners, &own);
        }
        out.push(("Message queues".into(), table));
    }
    out
}

/// The tables of those that use the pool.
fn users(contents: &Contents) -> Vec<Titled> {
    let mut kernels = Table::new(MEMBER_HEADING);
    kernels.rows(contents.members.iter().map(member_row));
    let mut processes = Table::new("PROCESS  KERNEL  PID HERE");
    for process in &contents.processes {
        processes.row(&[&process.label, &process.kernel, &or_dash(process.pid_here)]);
    }
    let mut waiters = Table::new(WAITER_HEADING);
    waiters.rows(contents.waiters.iter().map(waiter_row));
    vec![("Kernels".into(), kernels), ("Processes".into(), processes), ("Waiting threads".into(), waiters)]
}

/// The title of the list of segments. If they are aligned to more than pages, it says how much they take.
fn segments_title(contents: &Contents) -> String {
    let title = "Shared memory segments";
    let align = contents.segment_align;
    if align <= 4096 {
        return title.into();
    }
    let (mut asked, mut taken) = (0u64, 0u64);
    for size in contents.segments.iter().map(|segment| segment.size) {
        asked = asked.saturating_add(size);
        taken = taken.saturating_add(size.checked_next_multiple_of(align).unwrap_or(u64::MAX));
    }
    let [align, asked, taken] = [align, asked, taken].map(size::show);
    format!("{title} (each takes a multiple of {align}: {taken} in all, of which {asked} were asked for)")
}

fn label(process: &Option<Process>) -> String {
    or_dash(process.as_ref().map(|process| &process.label))
}

/// The names of owners, each of which the system is asked for once.
#[derive(Default)]
struct Owners(HashMap<u32, String>);

impl Owners {
    /// A user's name, or number.
    fn name(&mut self, user: u32) -> &str {
        self.0.entry(user).or_insert_with(|| user::name(user).unwrap_or_else(|| user.to_string()))
    }
}

/// Adds an IPC object, with cells of its kind. A removed segment has no key any more.
fn object_row(table: &mut Table, object: &Object, removed: bool, owners: &mut Owners, own: &[&dyn Display]) {
    let key = if removed { "(removed)".into() } else { format!("{:#010x}", object.key) };
    let mode = format!("{:03o}", object.mode);
    let all: [&dyn Display; 4] = [&key, &object.id, &owners.name(object.uid), &mode];
    table.row(&[&all, own].concat());
}

/// The contents of pools, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct All<'a> {
    /// The pools.
    pools: &'a [Contents],
}

/// Removes IPC objects.
pub fn ipcrm(ipcrm: &Ipcrm) -> Result<u8> {
    let targets = targets(ipcrm);
    if targets.is_empty() {
        return Err(Error::new("it was not said what to remove")
            .code(2)
            .hint("For instance: vshmem ipcrm -q 1073872896, vshmem ipcrm -M 0x1234, vshmem ipcrm --all"));
    }
    let found = find(ipcrm.pool.as_deref())?;
    let pool = match &found[..] {
        [one] => one,
        [] => return Err(Error::new("you have no pools, so there is nothing to remove").code(1)),
        several => {
            let names: Vec<_> = several.iter().map(name_of).collect();
            return Err(Error::new("you have several pools: choose one with --pool")
                .code(2)
                .hint(format!("There are {}.", names.join(", "))));
        }
    };
    let failures = remove(pool, &targets)?;
    for failure in &failures {
        tell!("vshmem: {failure}");
    }
    Ok(u8::from(!failures.is_empty()))
}

fn targets(ipcrm: &Ipcrm) -> Vec<Target> {
    let mut out = Vec::new();
    let kinds = [
        (Kind::Segment, &ipcrm.shmem_id, &ipcrm.shmem_key),
        (Kind::Set, &ipcrm.semaphore_id, &ipcrm.semaphore_key),
        (Kind::Queue, &ipcrm.queue_id, &ipcrm.queue_key),
    ];
    for (kind, ids, keys) in kinds {
        out.extend(ids.iter().map(|&id| Target::Id(kind, id)));
        out.extend(keys.iter().map(|&key| Target::Key(kind, key)));
        if ipcrm.all {
            out.push(Target::All(kind));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_read() {
        assert_eq!(key("0x1234"), Ok(0x1234));
        assert_eq!(key("0xffffffff"), Ok(-1));
        assert_eq!(key("-5"), Ok(-5));
        assert!(key("0x").is_err() && key("x").is_err() && key("0x100000000").is_err());
    }
}
