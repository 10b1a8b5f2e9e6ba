//! `vshmem ipcs` and `vshmem ipcrm`.

use crate::age::{age, show_age};
use crate::json::print_document;
use crate::output::print;
use crate::{args, size, table};
use schemars::JsonSchema;
use serde::Serialize;
use vshmem_cluster::contents::{contents, remove, Contents, Kind, Target};
use vshmem_cluster::participants::{Member, Waiter};
use vshmem_cluster::pools::{find, name_of};
use vshmem_cluster::processes::Process;
use vshmem_cluster::sample::Object;
use vshmem_cluster::{Error, Result};

/// Shows what lies in pools.
pub fn ipcs(ipcs: &args::Ipcs) -> Result<u8> {
    let mut seen = Vec::new();
    let mut code = 0;
    for pool in find(ipcs.pool.as_deref())? {
        match contents(&pool) {
            Ok(found) => {
                if !found.clean {
                    eprintln!("vshmem: {}", left_unclean(&found.pool));
                }
                seen.push(found);
            }
            Err(error) if ipcs.pool.is_some() => return Err(error),
            Err(error) => {
                eprintln!("vshmem: {error}");
                code = 1;
            }
        }
    }
    if ipcs.json {
        print_document(All { pools: &seen })?;
    } else {
        let text: Vec<_> = seen.iter().map(|seen| describe(seen, ipcs.waiters)).collect();
        print(&text.join("\n"))?;
        if seen.is_empty() && code == 0 {
            eprintln!(
                "You have no pools. They are made at first use, by vshmem pool create, or by vshmem up."
            );
        }
    }
    Ok(code)
}

fn left_unclean(pool: &str) -> String {
    format!(
        "somebody who uses the pool {pool} holds a lock of it and does not move, perhaps in a machine that is paused; \
         what the dead have left may be among what is shown"
    )
}

fn describe(contents: &Contents, with_waiters: bool) -> String {
    let kernels = contents.members.iter().map(|member| match member.alive {
        true => member.name.clone(),
        false => format!("{}, which is dead", member.name),
    });
    let kernels = kernels.collect::<Vec<_>>().join("; ");
    let mut out = format!("Pool {} (kernels: {kernels})\n", contents.pool);
    let mut section = |title: &str, heading: &[&str], rows: Vec<Vec<String>>| {
        let mut all = vec![heading.iter().map(|cell| cell.to_string()).collect()];
        all.extend(rows);
        out.push_str(&format!("\n{title}\n{}", table::layout(&all)));
    };
    let segments = contents.segments.iter().map(|segment| {
        let mut row = owner_cells(&segment.object);
        row.push(segment.size.to_string());
        row.push(segment.attached.to_string());
        row.push(name(&segment.creator));
        row.push(name(&segment.last));
        row.push(if segment.removed { "removed".into() } else { String::new() });
        row
    });
    section(
        &segments_title(contents),
        &["KEY", "ID", "OWNER", "PERMS", "BYTES", "NATTCH", "CREATOR", "LAST", "STATUS"],
        segments.collect(),
    );
    let sets = contents.sets.iter().map(|set| {
        let mut row = owner_cells(&set.object);
        row.push(set.count.to_string());
        row.push(set.object.waiting.to_string());
        row
    });
    section("Semaphore sets", &["KEY", "ID", "OWNER", "PERMS", "NSEMS", "WAITING"], sets.collect());
    let queues = contents.queues.iter().map(|queue| {
        let mut row = owner_cells(&queue.object);
        row.push(queue.bytes.to_string());
        row.push(queue.messages.to_string());
        row.push(name(&queue.sender));
        row.push(name(&queue.receiver));
        row.push(queue.object.waiting.to_string());
        row
    });
    section(
        "Message queues",
        &["KEY", "ID", "OWNER", "PERMS", "BYTES", "MESSAGES", "SENDER", "RECEIVER", "WAITING"],
        queues.collect(),
    );
    if with_waiters {
        let kernels = contents.members.iter().map(member_row);
        section("Kernels", &MEMBER_HEADING, kernels.collect());
        let processes = contents.processes.iter().map(process_row);
        section("Processes", &PROCESS_HEADING, processes.collect());
        let waiters = contents.waiters.iter().map(waiter_row);
        section("Waiting threads", &WAITER_HEADING, waiters.collect());
    }
    out
}

/// What aligned segments take in all, where that is more than whole pages, stands above them.
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

const MEMBER_HEADING: [&str; 6] = ["KERNEL", "STATE", "PEER", "SINCE", "PROCESSES", "WAITING"];
const PROCESS_HEADING: [&str; 3] = ["PROCESS", "KERNEL", "PID HERE"];
const WAITER_HEADING: [&str; 6] = ["KIND", "ID", "PROCESS", "STATE", "SINCE", "WAITS FOR"];

fn state(alive: bool) -> String {
    if alive { "alive" } else { "dead" }.into()
}

fn member_row(member: &Member) -> Vec<String> {
    let unknown = || "-".to_string();
    vec![
        member.name.clone(),
        state(member.alive),
        member.peer.map_or_else(unknown, |peer| peer.to_string()),
        member.since.map_or_else(unknown, |since| show_age(age(since))),
        member.processes.to_string(),
        member.waiting.to_string(),
    ]
}

fn process_row(process: &Process) -> Vec<String> {
    let here = process.pid_here.map(|pid| pid.to_string());
    vec![process.label.clone(), process.kernel.clone(), here.unwrap_or_else(|| "-".into())]
}

fn waiter_row(waiter: &Waiter) -> Vec<String> {
    let since = waiter.since.and_then(|since| u64::try_from(since).ok());
    vec![
        waiter.kind.into(),
        waiter.id.to_string(),
        waiter.process.label.clone(),
        state(waiter.alive),
        since.map_or_else(|| "-".into(), |since| show_age(age(since))),
        waiter.wanted.clone(),
    ]
}

fn name(process: &Option<Process>) -> String {
    let process = process.as_ref();
    process.map_or_else(|| "-".into(), |process| process.label.clone())
}

fn owner_cells(owner: &Object) -> Vec<String> {
    vec![
        format!("{:#010x}", owner.key),
        owner.id.to_string(),
        owner.uid.to_string(),
        format!("{:03o}", owner.mode),
    ]
}

/// What lies in pools, as JSON shows it.
#[derive(Serialize, JsonSchema)]
pub struct All<'a> {
    /// The pools.
    pools: &'a [Contents],
}

/// Removes IPC objects.
pub fn ipcrm(ipcrm: &args::Ipcrm) -> Result<u8> {
    let targets = targets(ipcrm);
    if targets.is_empty() {
        return Err(Error::new("nothing was named to be removed")
            .code(2)
            .hint("For instance: vshmem ipcrm -q 1073872896, vshmem ipcrm -M 0x1234, vshmem ipcrm --all"));
    }
    let found = find(ipcrm.pool.as_deref())?;
    let pool = match &found[..] {
        [one] => one,
        [] => return Err(Error::new("you have no pools, so there is nothing to remove").code(1)),
        several => {
            let names: Vec<_> = several.iter().map(name_of).collect();
            return Err(Error::new("you have several pools; say which one is meant, with --pool")
                .code(2)
                .hint(format!("There are {}.", names.join(", "))));
        }
    };
    let failures = remove(pool, &targets)?;
    for failure in &failures {
        eprintln!("vshmem: {failure}");
    }
    Ok(u8::from(!failures.is_empty()))
}

fn targets(ipcrm: &args::Ipcrm) -> Vec<Target> {
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
