//! The transports by which ranks have talked, by UCX's log: UCX says once of each kind of peer what it takes
//! for it, from level `info` on.

use std::collections::BTreeSet;

/// The place of a peer, as UCX sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// It shares memory (since UCX 1.15).
    SameMemory,
    /// It does not (since UCX 1.15).
    Elsewhere,
    /// UCX does not say.
    Unknown,
}

/// The transports of a group's ranks, by their logs.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupTransports {
    /// The transports that were taken for any peer but the rank itself.
    pub transports: BTreeSet<String>,
    /// Transports for one peer among which sysv and the network both are, or the network for a peer that
    /// shares memory.
    pub wrong: BTreeSet<String>,
    /// Some peers are reached by the network alone.
    has_remote: bool,
    /// Some peers are reached by sysv.
    has_pool: bool,
    /// UCX's library was loaded. It opens its log then.
    is_loaded: bool,
    /// UCX was started: it has said what is set, or what it takes for a rank itself.
    is_started: bool,
}

/// A group's part of a job, without its ranks' logs.
#[derive(Debug, Clone, Copy)]
pub struct GroupJob<'a> {
    /// All ranks of the job share this pool.
    pub alone: bool,
    /// The group's hosts.
    pub hosts: usize,
    /// The group's ranks.
    pub ranks: u32,
    /// The most bytes that have passed the network of one of its hosts.
    pub bytes: u64,
    /// A setting of the user's own that leads past UCX, with its harm.
    pub harm: Option<&'a str>,
}

impl GroupJob<'_> {
    /// True if more has passed the network than launchers need, which start daemons and ranks and tell these
    /// of each other. Two ranks that only begin and end took 20 kB in each host, eight up to 41 kB. A large
    /// host's topology takes more, and so does what ranks print.
    fn is_busy(&self) -> bool {
        const BYTES_OF_HOST: u64 = 256 << 10;
        const BYTES_OF_RANK: u64 = 16 << 10;
        self.bytes > self.hosts as u64 * BYTES_OF_HOST + u64::from(self.ranks) * BYTES_OF_RANK
    }
}

impl GroupTransports {
    /// Reads the logs of ranks, which may be empty.
    pub fn read_log(&mut self, log: &str) {
        self.is_loaded = true;
        self.is_started |= log.lines().any(|line| line.contains(" env variable") || is_choice(line));
        for (scope, transports) in log.lines().filter_map(peers) {
            let has_network = transports.iter().any(|name| is_network(name));
            let has_pool = transports.contains("sysv");
            if has_network && (has_pool || scope == Scope::SameMemory) {
                self.wrong.insert(transports.iter().cloned().collect::<Vec<_>>().join(" and "));
            }
            self.has_remote |= has_network && !has_pool && scope != Scope::SameMemory;
            self.has_pool |= has_pool;
            self.transports.extend(transports);
        }
    }

    /// The reason why the job should fail, though its exit code is 0.
    pub fn fault(&self, seen: &GroupJob<'_>) -> Option<String> {
        if let Some(wrong) = self.wrong.first() {
            return Some(format!("ranks that share it have talked by {wrong}"));
        }
        if seen.alone && self.has_remote {
            return Some("ranks that share it have talked over the network".into());
        }
        if seen.hosts > 1 && self.has_remote && !self.has_pool {
            return Some(
                "ranks that share it did not find each other, and have talked over the network".into(),
            );
        }
        if seen.ranks < 2 {
            return None;
        }
        let bytes = seen.bytes;
        if self.transports.is_empty() {
            // Few bytes are no excuse: the messages may be short, or within one host.
            if self.is_loaded && !self.is_started {
                return Some(format!(
                    "no rank that shares it has started UCX, so none has talked through it, and {bytes} bytes \
                     passed the network"
                ));
            }
            // Ranks that send nothing may take nothing: Open MPI 5 looks for another rank at the first
            // message.
            return seen.is_busy().then(|| {
                format!(
                    "ranks that share it have taken nothing of UCX's, and {bytes} bytes passed the network, more than \
                     a launcher needs"
                )
            });
        }
        let harm = seen.harm.filter(|_| seen.alone && seen.is_busy())?;
        Some(format!("{bytes} bytes passed the network, more than a launcher needs: {harm}"))
    }

    /// The reason to doubt that all went through the pool, though nothing shows that it did not.
    pub fn doubt(&self, seen: &GroupJob<'_>) -> Option<&'static str> {
        (seen.alone && seen.hosts > 1 && seen.is_busy()).then_some(
            "that is more than a launcher needs: what ranks print, other connections, or messages past UCX",
        )
    }

    /// A summary of what the ranks have done, to stand behind their names. `code` is the job's.
    pub fn summary(&self, code: u8) -> String {
        let transports: Vec<&str> = self.transports.iter().map(String::as_str).collect();
        match (transports.is_empty(), code) {
            (false, _) => format!("have taken {}", transports.join(" and ")),
            // A rank that is killed may not have come to it.
            (true, 1..) => format!("have ended with {code} before they said by what they talk"),
            (true, 0) if self.is_started => "have started UCX, and reached no other rank by it".into(),
            (true, 0) => "have not started UCX".into(),
        }
    }
}

/// True for a line of the log by which UCX tells the transports for a peer.
fn is_choice(line: &str) -> bool {
    line.contains("ep_cfg[") || line.contains(" cfg#")
}

/// The transports for a peer that a line of the log tells of, if it tells of one that is not the rank itself:
/// `ep_cfg[1]: tag(sysv/memory tcp/eth0) am(sysv/memory)`, since UCX 1.15
/// `intra-node cfg#1 tag(sysv/memory)`.
fn peers(line: &str) -> Option<(Scope, BTreeSet<String>)> {
    let (head, lanes) = match (line.find("ep_cfg["), line.find(" cfg#")) {
        (Some(at), _) | (None, Some(at)) => line.split_at(at),
        (None, None) => return None,
    };
    let scope = match head.split_whitespace().last() {
        Some("intra-node") => Scope::SameMemory,
        Some("inter-node") => Scope::Elsewhere,
        _ => Scope::Unknown,
    };
    let inside = lanes.split('(').skip(1).filter_map(|rest| rest.split(')').next());
    let names = inside.flat_map(str::split_whitespace).filter_map(|lane| Some(lane.split_once('/')?.0));
    // A rank may have written anything into its log.
    let transports: BTreeSet<String> = names.filter(|name| is_name(name)).map(String::from).collect();
    (!transports.is_empty() && !transports.contains("self")).then_some((scope, transports))
}

/// True for TCP, and for verbs of any kind.
fn is_network(name: &str) -> bool {
    name == "tcp" || ["ud_", "rc_", "dc_", "srd"].iter().any(|start| name.starts_with(start))
}

fn is_name(text: &str) -> bool {
    text.len() <= 16 && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
}

/// The bytes that have passed a host's network interfaces both ways, without the one to itself, by its
/// /proc/net/dev.
pub fn bytes_on_network(table: &str) -> u64 {
    let of_interface = |line: &str| {
        let (name, counts) = line.split_once(':')?;
        let mut counts = counts.split_whitespace().map(|count| count.parse::<u64>().unwrap_or(0));
        let received = counts.next()?;
        let sent = counts.nth(7)?;
        (name.trim() != "lo").then_some(received.saturating_add(sent))
    };
    table.lines().filter_map(of_interface).fold(0, u64::saturating_add)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lines of UCX 1.13.1 and 1.20.1, as MPICH and Open MPI have them written.
    const OLD: &str = "[1795576405.66] [vm:31032:0] ucp_worker.c:1763 UCX  INFO    ep_cfg";
    const NEW: &str = "[1795576405.96] [vm:31076:0] ucp_worker.c:1912 UCX  INFO    ucp_context_0";

    #[test]
    fn what_is_no_name_of_a_transport_is_not_repeated() {
        let mut heard = GroupTransports::default();
        heard.read_log(&format!(
            "{NEW} intra-node cfg#1 tag(sysv/memory \u{1b}]0;x\u{7}/y {}/z)",
            "n".repeat(99)
        ));
        assert_eq!(heard.transports.into_iter().collect::<Vec<_>>(), ["sysv"]);
    }

    fn heard(lines: &[String]) -> GroupTransports {
        let mut heard = GroupTransports::default();
        heard.read_log(&lines.join("\n"));
        heard
    }

    /// Two ranks, in one host or two, of a job that has no others, or some.
    fn two(alone: bool, in_several: bool) -> GroupJob<'static> {
        GroupJob { alone, hosts: 1 + usize::from(in_several), ranks: 2, bytes: 20_000, harm: None }
    }

    /// UCX was started: by 1.20.1, in a rank of Open MPI that only begins and ends.
    fn started() -> GroupTransports {
        heard(&[
            "[1.0] [two:567  :0]   parser.c:2364 UCX  INFO  UCX_* env variables: UCX_TLS=sysv,self".into(),
            format!("{NEW} self cfg#0 tag(self/memory cma/memory)"),
        ])
    }

    const MUCH: u64 = 368_909_488;

    #[test]
    fn an_mpi_that_leaves_ucx_fails_the_job() {
        // Open MPI by ob1 or cm, MPICH by ofi: UCX's library is loaded, and its log stays empty. The messages
        // may be short, and ranks of one host may have used its own memory.
        for (bytes, in_several) in [(MUCH, true), (20_000, true), (0, false)] {
            let why = heard(&[]).fault(&GroupJob { bytes, ..two(true, in_several) }).unwrap();
            assert!(why.contains("no rank that shares it has started UCX"), "{why}");
            assert!(why.contains(&format!("{bytes} bytes")), "{why}");
        }
        assert!(heard(&[]).fault(&two(false, true)).is_some());
        // A level of the log at which the library says something as soon as it is loaded.
        let debug = heard(&["[1.0] [one:1:0] debug.c:1 UCX  DEBUG using signal stack".into()]);
        assert!(debug.fault(&two(true, true)).is_some());
        // Not even the library was loaded, or UCX was started and something else was chosen.
        for heard in [GroupTransports::default(), started()] {
            let why = heard.fault(&GroupJob { bytes: MUCH, ..two(true, true) }).unwrap();
            assert!(why.contains("taken nothing") && why.contains("368909488 bytes"), "{why}");
        }
    }

    #[test]
    fn ranks_that_send_nothing_do_not_fail() {
        // They begin and end, or are no programs of MPI's, and launchers have their traffic.
        for heard in [started(), GroupTransports::default()] {
            assert_eq!(heard.fault(&two(true, true)), None);
            let eight = GroupJob { ranks: 8, bytes: 500_000, ..two(true, true) };
            assert_eq!(heard.fault(&eight), None);
        }
        // One rank has nobody to talk with, whatever it downloads.
        for heard in [started(), GroupTransports::default(), heard(&[])] {
            assert_eq!(heard.fault(&GroupJob { ranks: 1, bytes: MUCH, ..two(true, false) }), None);
        }
    }

    #[test]
    fn one_sided_operations_past_ucx_fail_the_job() {
        let pool = || heard(&[format!("{NEW} intra-node cfg#1 tag(sysv/memory)")]);
        let busy = GroupJob { bytes: MUCH, ..two(true, true) };
        // What ranks print goes by the network, too.
        assert_eq!(pool().fault(&busy), None);
        assert!(pool().doubt(&busy).is_some() && pool().doubt(&two(true, true)).is_none());
        let harm = Some("OMPI_MCA_osc=rdma: by TCP");
        let why = pool().fault(&GroupJob { harm, ..busy }).unwrap();
        assert!(why.contains("368909488 bytes") && why.contains("OMPI_MCA_osc=rdma"), "{why}");
        assert_eq!(pool().fault(&GroupJob { harm, ..two(true, true) }), None);
        // Others may be reached by the network.
        assert_eq!(pool().fault(&GroupJob { alone: false, harm, ..busy }), None);
        assert!(pool().doubt(&GroupJob { alone: false, ..busy }).is_none());
    }

    #[test]
    fn jobs_that_failed_are_not_said_to_have_taken_nothing() {
        for heard in [GroupTransports::default(), heard(&[]), started()] {
            assert_eq!(heard.summary(137), "have ended with 137 before they said by what they talk");
        }
        assert_eq!(heard(&[]).summary(0), "have not started UCX");
        assert_eq!(started().summary(0), "have started UCX, and reached no other rank by it");
        let pool = heard(&[format!("{NEW} intra-node cfg#1 tag(sysv/memory)")]);
        assert_eq!(
            (pool.summary(0).as_str(), pool.summary(1).as_str()),
            ("have taken sysv", "have taken sysv")
        );
    }

    #[test]
    fn the_pool_alone_is_right() {
        let lines = [
            format!("{OLD}[0]: tag(sysv/memory) rma(sysv/memory) am(sysv/memory)"),
            format!("{OLD}[1]: tag(self/memory0 tcp/lo) rma(self/memory0 sysv/memory) am(self/memory0)"),
            format!("{NEW} self cfg#0 tag(self/memory tcp/eth0)  rma(self/memory)"),
            format!("{NEW} intra-node cfg#1 tag(sysv/memory)  am(sysv/memory)"),
            "[1] parser.c:1916 UCX  INFO  UCX_* env variables: UCX_TLS=sysv,self,tcp".into(),
        ];
        let heard = heard(&lines);
        assert_eq!(heard.transports, BTreeSet::from(["sysv".into()]));
        assert_eq!(heard.fault(&two(true, true)), None);
    }

    #[test]
    fn tcp_beside_the_pool_is_wrong() {
        for line in [
            format!("{OLD}[1]: tag(sysv/memory tcp/lo tcp/eth0)"),
            format!("{NEW} intra-node cfg#1 tag(sysv/memory tcp/eth0)"),
        ] {
            let heard = heard(&[line]);
            let why = "ranks that share it have talked by sysv and tcp";
            assert_eq!(heard.fault(&two(false, true)).as_deref(), Some(why));
        }
        let heard = heard(&[format!("{NEW} intra-node cfg#1 tag(tcp/eth0)  rma_am(tcp/eth0)")]);
        assert_eq!(heard.fault(&two(false, true)).as_deref(), Some("ranks that share it have talked by tcp"));
    }

    #[test]
    fn tcp_to_others_is_right_if_there_are_others() {
        for line in [format!("{OLD}[1]: tag(tcp/eth0)"), format!("{NEW} inter-node cfg#2 tag(tcp/eth0)")] {
            let alone = heard(std::slice::from_ref(&line));
            assert_eq!(alone.fault(&two(false, false)), None);
            assert!(alone.fault(&two(true, true)).unwrap().contains("over the network"));
            assert!(alone.fault(&two(false, true)).unwrap().contains("did not find each other"));
            let both = heard(&[line, format!("{OLD}[2]: tag(sysv/memory)")]);
            assert_eq!(both.fault(&two(false, true)), None);
        }
    }

    #[test]
    fn verbs_are_a_network() {
        let alone = heard(&[format!("{OLD}[2]: tag(ud_verbs/rxe0:1) rma_am(ud_verbs/rxe0:1)")]);
        assert!(alone.fault(&two(true, true)).is_some());
        assert_eq!(alone.fault(&two(false, false)), None);
        let beside = heard(&[format!("{OLD}[0]: tag(rc_verbs/rxe0:1 sysv/memory)")]);
        let why = "ranks that share it have talked by rc_verbs and sysv";
        assert_eq!(beside.fault(&two(false, true)).as_deref(), Some(why));
    }

    #[test]
    fn damaged_lines_are_passed_over() {
        for line in
            ["ep_cfg[", "ep_cfg[1]: tag(", "x cfg#", "intra-node cfg#1 tag()", "cfg#1 tag(sysv)", ")("]
        {
            assert_eq!(peers(line), None, "{line}");
        }
    }

    #[test]
    fn interfaces_are_counted() {
        let table = "Inter-|   Receive  |  Transmit\n face |bytes packets|bytes\n\
                     lo: 100 1 0 0 0 0 0 0 100 1 0 0 0 0 0 0\n\
                     eth0: 1000 5 0 0 0 0 0 0 234 4 0 0 0 0 0 0\n eth1:1 1 0 0 0 0 0 0 1 1 0 0 0 0 0 0\n";
        assert_eq!(bytes_on_network(table), 1236);
        assert_eq!(bytes_on_network(""), 0);
    }
}
