//! The hosts of a job as users name them, and the number of ranks that each of them gets.

use vshmem_base::error::{error, Error, Result};

/// A host as `-host` or a line of a host file names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedHost {
    /// Its name.
    pub name: String,
    /// Its slots, if they are said.
    pub slots: Option<u32>,
    /// The pool that it has, if the host file says so (`pool=`).
    pub pool: Option<String>,
}

/// The exit code of a mistake in a command line.
const USAGE: u8 = 2;

/// Reads the value of `-host`: `a:2,b:2`, or `a,b`, which is one slot each, as it is for every MPI.
pub fn parse_list(text: &str) -> Result<Vec<NamedHost>> {
    let mut hosts = Vec::new();
    for word in text.split(',').map(str::trim) {
        let host = parse_host(word).map_err(|why| why.about("-host").code(USAGE))?;
        add(&mut hosts, NamedHost { slots: host.slots.or(Some(1)), ..host });
    }
    Ok(hosts)
}

/// Reads a host file: MPICH's `a:2` or Open MPI's `a slots=2`, a host a line, with `pool=` where hosts don't
/// all have the same.
pub fn parse_file(text: &str) -> Result<Vec<NamedHost>> {
    let mut hosts = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default();
        // Open MPI takes `slots = 2`, too.
        let line = line.split('=').map(str::trim).collect::<Vec<_>>().join("=");
        let mut words = line.split_whitespace();
        let Some(first) = words.next() else {
            continue;
        };
        let about = |why: Error| why.about(&format!("the host file's line {}", index + 1)).code(USAGE);
        let mut host = parse_host(first).map_err(about)?;
        for word in words {
            read_attribute(&mut host, word).map_err(about)?;
        }
        add(&mut hosts, host);
    }
    match hosts.is_empty() {
        true => Err(Error::new("the host file names no host").code(USAGE)),
        false => Ok(hosts),
    }
}

fn read_attribute(host: &mut NamedHost, word: &str) -> Result<()> {
    match word.split_once('=') {
        Some(("slots" | "slot" | "cpus" | "cpu" | "count", count)) => host.slots = Some(parse_slots(count)?),
        // The bound to which Open MPI may go beyond the slots. Here -n says how many ranks there are.
        Some(("max_slots" | "max-slots", count)) => drop(parse_slots(count)?),
        Some(("pool", pool)) if !pool.is_empty() => host.pool = Some(pool.into()),
        _ => return Err(error!("{word} is neither slots=, max_slots= nor pool=")),
    }
    Ok(())
}

fn parse_host(word: &str) -> Result<NamedHost> {
    let (name, slots) = match word.split_once(':') {
        Some((name, slots)) => (name, Some(parse_slots(slots)?)),
        None => (word, None),
    };
    let is_part = |c: char| c.is_ascii_alphanumeric() || "._-".contains(c);
    // The name becomes a word of commands.
    if name.is_empty() || name.starts_with('-') || !name.chars().all(is_part) {
        return Err(error!("{word} is no host; one is a name, or a name and how many ranks it takes: a:2"));
    }
    Ok(NamedHost { name: name.into(), slots, pool: None })
}

fn parse_slots(text: &str) -> Result<u32> {
    let count = text.parse().ok().filter(|count| (1..=MOST_RANKS).contains(count));
    count.ok_or_else(|| error!("{text} is no number of ranks from 1 to {MOST_RANKS}"))
}

/// A host that is named twice has the slots of both.
fn add(hosts: &mut Vec<NamedHost>, host: NamedHost) {
    match hosts.iter_mut().find(|it| it.name == host.name) {
        None => hosts.push(host),
        Some(it) => {
            it.slots = Some(it.slots.unwrap_or(1).saturating_add(host.slots.unwrap_or(1)).min(MOST_RANKS));
            it.pool = host.pool.or(it.pool.take());
        }
    }
}

/// The most ranks of a job: more are a mistake.
pub const MOST_RANKS: u32 = 4096;

/// The numbers of ranks that hosts with these slots get: each as many as it has slots, in rounds, until all
/// are dealt out. Ranks are then numbered host by host, whichever MPI it is.
pub fn deal_out(slots: &[u32], ranks: u32) -> Vec<u32> {
    let mut counts = vec![0; slots.len()];
    let mut left = ranks;
    while left > 0 && slots.iter().any(|slots| *slots > 0) {
        for (count, slots) in counts.iter_mut().zip(slots) {
            let more = left.min(*slots);
            *count += more;
            left -= more;
        }
    }
    counts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(hosts: &[NamedHost]) -> String {
        let one = |host: &NamedHost| {
            let slots = host.slots.map_or("-".into(), |slots| slots.to_string());
            format!("{} {slots} {}", host.name, host.pool.as_deref().unwrap_or("-"))
        };
        hosts.iter().map(one).collect::<Vec<_>>().join("; ")
    }

    #[test]
    fn lists_are_read() {
        assert_eq!(shown(&parse_list("a:2,b:3").unwrap()), "a 2 -; b 3 -");
        assert_eq!(shown(&parse_list("a, b.c-d_1").unwrap()), "a 1 -; b.c-d_1 1 -");
        assert_eq!(shown(&parse_list("a,b,a").unwrap()), "a 2 -; b 1 -");
        for wrong in ["", "a,", "a:0", "a:x", "-x", "a;b", "a b", "$(x)", ":2", "a:5000"] {
            let why = parse_list(wrong).unwrap_err();
            assert!(why.to_string().starts_with("-host: ") && why.exit_code() == 2, "{wrong}: {why}");
        }
    }

    #[test]
    fn host_files_of_both_are_read() {
        let mpich = "# two\na:2\nb:1   # one\n\n";
        assert_eq!(shown(&parse_file(mpich).unwrap()), "a 2 -; b 1 -");
        let open_mpi = "a slots=2 max_slots=4\r\nb\nc slots = 3 max-slots = 3\nd cpu=1\n";
        assert_eq!(shown(&parse_file(open_mpi).unwrap()), "a 2 -; b - -; c 3 -; d 1 -");
        let pools = "a slots=2 pool=one\nb pool=/run/two";
        assert_eq!(shown(&parse_file(pools).unwrap()), "a 2 one; b - /run/two");
        for (wrong, why) in [
            ("", "names no host"),
            ("a\nb user=x", "line 2: user=x is neither"),
            ("a slots=", "line 1:  is no number"),
            ("a slots=x", "line 1: x is no number"),
            ("a pool=", "line 1: pool= is neither"),
        ] {
            let error = parse_file(wrong).unwrap_err().to_string();
            assert!(error.contains(why), "{wrong}: {error}");
        }
    }

    #[test]
    fn ranks_are_dealt_out_by_slots() {
        assert_eq!(deal_out(&[2, 2], 4), [2, 2]);
        assert_eq!(deal_out(&[2, 2], 3), [2, 1]);
        assert_eq!(deal_out(&[1, 1], 4), [2, 2]);
        assert_eq!(deal_out(&[1, 1], 3), [2, 1]);
        assert_eq!(deal_out(&[4, 1], 7), [6, 1]);
        assert_eq!(deal_out(&[4, 1], 2), [2, 0]);
        assert_eq!(deal_out(&[0, 0], 2), [0, 0]);
        assert_eq!(deal_out(&[], 2), [0; 0]);
    }
}
