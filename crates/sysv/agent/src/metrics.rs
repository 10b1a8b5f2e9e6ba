//! The back end's metrics, in Prometheus's text format.
//!
//! There is a series for each pool, and for each of its members, but none for an IPC object: members decide
//! how many of those there are.

use std::fmt::{Display, Write};
use vshmem_base::text::plain;

/// The media type of the format.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// A member of a pool.
pub struct Member {
    /// Its number.
    pub member: u16,
    /// Its name.
    pub name: String,
    /// Whether it is alive, as far as is known.
    pub alive: bool,
    /// Its processes that have a slot.
    pub processes: u64,
    /// Its waiting threads.
    pub sleepers: u64,
}

/// A pool that is served.
pub struct Pool {
    /// Its name.
    pub name: String,
    /// Bytes.
    pub size: u64,
    /// Bytes of its file that are backed by memory.
    pub memory: u64,
    /// Bytes of segments.
    pub segments: u64,
    /// Bytes that are free for segments.
    pub free: u64,
    /// Numbers of segments, sets and queues.
    pub objects: [u64; 3],
    /// Semaphores of all sets.
    pub semaphores: u64,
    /// Messages in all queues.
    pub messages: u64,
    /// Bytes of text in all queues.
    pub text: u64,
    /// Numbers of threads that wait at sets, and at queues.
    pub sleepers: [u64; 2],
    /// Machines that are connected.
    pub peers: u64,
    /// The number of times that the host's doorbell was rung.
    pub doorbells: u64,
    /// Bytes of removed segments that were given back to the host.
    pub given_back: u64,
    /// Whether it is in quarantine.
    pub quarantined: bool,
    /// Its members.
    pub members: Vec<Member>,
}

/// A text in the format.
#[derive(Default)]
struct Text(String);

impl Text {
    /// Begins a metric.
    fn metric(&mut self, name: &str, kind: &str, help: &str) {
        let _ = writeln!(self.0, "# HELP vshmem_{name} {help}\n# TYPE vshmem_{name} {kind}");
    }

    fn value(&mut self, name: &str, labels: &[(&str, &dyn Display)], value: impl Display) {
        let _ = write!(self.0, "vshmem_{name}");
        for (i, (label, value)) in labels.iter().enumerate() {
            let before = if i == 0 { '{' } else { ',' };
            let _ = write!(self.0, "{before}{label}=\"{}\"", escaped(&value.to_string()));
        }
        let after = if labels.is_empty() { "" } else { "}" };
        let _ = writeln!(self.0, "{after} {value}");
    }
}

/// A label's value, escaped for the format, and safe for a terminal.
fn escaped(value: &str) -> String {
    plain(value).replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

type PoolMetric = (&'static str, &'static str, &'static str, fn(&Pool) -> u64);

/// Metrics with one value for each pool: name, type, help, value.
const POOL_METRICS: [PoolMetric; 11] = [
    ("pool_size_bytes", "gauge", "Size of a pool.", |p| p.size),
    ("pool_memory_bytes", "gauge", "Memory of the host that a pool takes.", |p| p.memory),
    ("pool_segment_bytes", "gauge", "Bytes of all segments in a pool, in whole pages.", |p| p.segments),
    ("pool_segment_free_bytes", "gauge", "Bytes of a pool that segments can have besides.", |p| p.free),
    ("pool_semaphores", "gauge", "Semaphores of all sets in a pool.", |p| p.semaphores),
    ("pool_queued_messages", "gauge", "Messages in all queues of a pool.", |p| p.messages),
    ("pool_queued_bytes", "gauge", "Bytes of text in all queues of a pool.", |p| p.text),
    ("pool_peers", "gauge", "Machines that are connected for a pool.", |p| p.peers),
    ("pool_rings_total", "counter", "How often machines have rung the host for a pool.", |p| p.doorbells),
    (
        "pool_given_back_bytes_total",
        "counter",
        "Bytes of segments that machines have removed and that were given back to the host.",
        |p| p.given_back,
    ),
    (
        "pool_quarantined",
        "gauge",
        "Whether a pool is in quarantine: it is hardly cleaned up, because that ran over budget again and again.",
        |p| u64::from(p.quarantined),
    ),
];

type MemberMetric = (&'static str, &'static str, fn(&Member) -> u64);

/// Metrics with one value for each member: name, help, value.
const MEMBER_METRICS: [MemberMetric; 3] = [
    ("machine_up", "Whether a machine that uses a pool is alive, the host included.", |m| u64::from(m.alive)),
    ("machine_processes", "Processes of a machine that use a pool.", |m| m.processes),
    ("machine_sleepers", "Threads of a machine that wait in a pool.", |m| m.sleepers),
];

/// All metrics. `served` is the number of pools that are served; `pools` may be some of them.
pub fn text(served: usize, pools: &[&Pool], since: u64) -> String {
    let mut text = Text::default();
    text.metric("build_info", "gauge", "Version of vshmem agent.");
    text.value("build_info", &[("version", &env!("CARGO_PKG_VERSION"))], 1);
    text.metric("agent_start_time_seconds", "gauge", "When vshmem agent began, since the epoch.");
    text.value("agent_start_time_seconds", &[], since);
    text.metric("pools", "gauge", "Pools that are served.");
    text.value("pools", &[], served);
    for (name, kind, help, number) in POOL_METRICS {
        text.metric(name, kind, help);
        for pool in pools {
            text.value(name, &[("pool", &pool.name)], number(pool));
        }
    }
    text.metric("pool_constructs", "gauge", "IPC objects in a pool.");
    for pool in pools {
        for (kind, count) in ["segment", "set", "queue"].iter().zip(pool.objects) {
            text.value("pool_constructs", &[("pool", &pool.name), ("kind", kind)], count);
        }
    }
    text.metric("pool_sleepers", "gauge", "Threads that wait in a pool.");
    for pool in pools {
        for (kind, count) in ["set", "queue"].iter().zip(pool.sleepers) {
            text.value("pool_sleepers", &[("pool", &pool.name), ("kind", kind)], count);
        }
    }
    for (name, help, number) in MEMBER_METRICS {
        text.metric(name, "gauge", help);
        for pool in pools {
            for m in &pool.members {
                let labels: [(&str, &dyn Display); 3] =
                    [("pool", &pool.name), ("machine", &m.name), ("member", &m.member)];
                text.value(name, &labels, number(m));
            }
        }
    }
    text.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Grafana's dashboard shows all of these metrics, and no other.
    fn dashboard_fits(text: &str) {
        let dashboard = include_str!("../../../../packaging/grafana/vshmem.json");
        let words = |text: &'static str| text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let named: BTreeSet<&str> = words(dashboard).filter(|word| word.starts_with("vshmem_")).collect();
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        assert_eq!(named, types.collect());
    }

    #[test]
    fn labels_are_escaped_and_series_are_unique() {
        let member = |member| Member {
            member,
            name: "a\"b\\c\nd".into(),
            alive: member == 2,
            processes: 3,
            sleepers: 1,
        };
        let pool = Pool {
            name: "work".into(),
            size: 1 << 20,
            memory: 4096,
            segments: 8192,
            free: 1,
            objects: [1, 2, 3],
            semaphores: 9,
            messages: 4,
            text: 5,
            sleepers: [6, 7],
            peers: 1,
            doorbells: 10,
            given_back: 11,
            quarantined: true,
            members: vec![member(1), member(2)],
        };
        let text = text(1, &[&pool], 1000);
        assert!(text.ends_with('\n'));
        for line in [
            "vshmem_pools 1",
            "vshmem_pool_constructs{pool=\"work\",kind=\"queue\"} 3",
            "vshmem_pool_given_back_bytes_total{pool=\"work\"} 11",
            "vshmem_pool_quarantined{pool=\"work\"} 1",
            "vshmem_machine_up{pool=\"work\",machine=\"a\\\"b\\\\c\\nd\",member=\"1\"} 0",
            "vshmem_machine_up{pool=\"work\",machine=\"a\\\"b\\\\c\\nd\",member=\"2\"} 1",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in {text}");
        }
        dashboard_fits(&text);
        let mut series: Vec<&str> = text.lines().filter(|l| !l.starts_with('#')).collect();
        let all = series.len();
        series.sort_unstable_by_key(|line| line.rsplit_once(' ').unwrap().0);
        series.dedup_by_key(|line| line.rsplit_once(' ').unwrap().0);
        assert_eq!(series.len(), all, "a series comes twice");
    }
}
