//! The transports by which ranks have talked, by UCX's log: UCX says once of each kind of peer what it takes
//! for it, from level `info` on.

use std::collections::BTreeSet;

/// Where a peer is, as UCX sees it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// It shares memory (since UCX 1.15).
    SameMemory,
    /// It does not (since UCX 1.15).
    Elsewhere,
    /// UCX does not say.
    Unknown,
}

/// What the ranks of a group, which share a pool, have said.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Heard {
    /// The transports that were taken for any peer but the rank itself.
    pub transports: BTreeSet<String>,
    /// Transports for one peer among which sysv and the network both are, or the network for a peer that
    /// shares memory.
    pub wrong: BTreeSet<String>,
    /// Some peers are reached by the network alone.
    has_remote: bool,
    /// Some peers are reached by sysv.
    has_pool: bool,
}

impl Heard {
    /// Takes down what the log of a rank says.
    pub fn take(&mut self, log: &str) {
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

    /// Why the job should fail. `alone`: all of its ranks share this pool; `in_several`: they run in several
    /// hosts.
    pub fn fault(&self, alone: bool, in_several: bool) -> Option<String> {
        if let Some(wrong) = self.wrong.first() {
            return Some(format!("ranks that share it have talked by {wrong}"));
        }
        if alone && self.has_remote {
            return Some("ranks that share it have talked over the network".into());
        }
        if in_several && self.has_remote && !self.has_pool {
            return Some(
                "ranks that share it did not find each other, and have talked over the network".into(),
            );
        }
        None
    }
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
    // Whoever wrote the log may have written anything.
    let transports: BTreeSet<String> = names.filter(|name| is_name(name)).map(String::from).collect();
    (!transports.is_empty() && !transports.contains("self")).then_some((scope, transports))
}

/// Whether a transport is TCP, or verbs of one kind or another.
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
        let mut heard = Heard::default();
        heard
            .take(&format!("{NEW} intra-node cfg#1 tag(sysv/memory \u{1b}]0;x\u{7}/y {}/z)", "n".repeat(99)));
        assert_eq!(heard.transports.into_iter().collect::<Vec<_>>(), ["sysv"]);
    }

    fn heard(lines: &[String]) -> Heard {
        let mut heard = Heard::default();
        heard.take(&lines.join("\n"));
        heard
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
        assert_eq!(heard.fault(true, true), None);
    }

    #[test]
    fn tcp_beside_the_pool_is_wrong() {
        for line in [
            format!("{OLD}[1]: tag(sysv/memory tcp/lo tcp/eth0)"),
            format!("{NEW} intra-node cfg#1 tag(sysv/memory tcp/eth0)"),
        ] {
            let heard = heard(&[line]);
            let why = "ranks that share it have talked by sysv and tcp";
            assert_eq!(heard.fault(false, true).as_deref(), Some(why));
        }
        let heard = heard(&[format!("{NEW} intra-node cfg#1 tag(tcp/eth0)  rma_am(tcp/eth0)")]);
        assert_eq!(heard.fault(false, true).as_deref(), Some("ranks that share it have talked by tcp"));
    }

    #[test]
    fn tcp_to_others_is_right_if_there_are_others() {
        for line in [format!("{OLD}[1]: tag(tcp/eth0)"), format!("{NEW} inter-node cfg#2 tag(tcp/eth0)")] {
            let alone = heard(std::slice::from_ref(&line));
            assert_eq!(alone.fault(false, false), None);
            assert!(alone.fault(true, true).unwrap().contains("over the network"));
            assert!(alone.fault(false, true).unwrap().contains("did not find each other"));
            let both = heard(&[line, format!("{OLD}[2]: tag(sysv/memory)")]);
            assert_eq!(both.fault(false, true), None);
        }
    }

    #[test]
    fn verbs_are_a_network() {
        let alone = heard(&[format!("{OLD}[2]: tag(ud_verbs/rxe0:1) rma_am(ud_verbs/rxe0:1)")]);
        assert!(alone.fault(true, true).is_some());
        assert_eq!(alone.fault(false, false), None);
        let beside = heard(&[format!("{OLD}[0]: tag(rc_verbs/rxe0:1 sysv/memory)")]);
        let why = "ranks that share it have talked by rc_verbs and sysv";
        assert_eq!(beside.fault(false, true).as_deref(), Some(why));
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
