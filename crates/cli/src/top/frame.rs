//! The display of `vshmem top`, as lines of text.

use crate::age::age;
use crate::size;
use crate::table::{member_row, or_dash, since, waiter_row, Table, MEMBER_HEADING, WAITER_HEADING};
use clap::ValueEnum;
use std::cmp::Ordering;
use vshmem_inspect::rates::Rates;
use vshmem_inspect::sample::{Object, Sample};

/// The order of IPC objects.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    /// By messages per second
    Rate,
    /// By bytes in them
    Bytes,
    /// By waiting threads
    Waiting,
    /// By last use
    Used,
    /// By id
    Id,
}

/// Columns of pools that a narrow terminal lacks.
const LESS_OF_POOLS: [&str; 4] = ["IN SEGMENTS", "RECV/s", "SIZE", "SENT/s"];

/// The user's choices.
pub struct View {
    /// The order of IPC objects.
    pub sort: Sort,
    /// In ascending order.
    pub reverse: bool,
    /// Waiting threads instead of IPC objects.
    pub threads: bool,
    /// Rows of the last table that are scrolled out of sight.
    pub scrolled: usize,
}

impl View {
    /// The initial view.
    pub fn new(sort: Sort) -> View {
        View { sort, reverse: false, threads: false, scrolled: 0 }
    }
}

/// A row of the table of IPC objects, with its sort keys.
struct Row {
    cells: Vec<String>,
    rate: f64,
    bytes: u64,
    waiting: u32,
    used: i64,
    id: i32,
}

/// The whole display as text, of as many columns as fit if there is a `width`.
pub fn text(view: &View, samples: &[Sample], width: Option<usize>) -> String {
    let width = width.unwrap_or(usize::MAX);
    let mut out = headline(samples) + "\n";
    let pools = pools(samples).within(width, &LESS_OF_POOLS);
    let sections = [("Pools", pools), ("Kernels", kernels(samples).within(width, &["PEER", "SINCE"]))];
    let objects = objects(view, samples).within(width, &["KEY", "USED", "RECV/s"]);
    let last = [("IPC objects", objects), ("Waiting threads", threads(samples).within(width, &["SINCE"]))];
    for (title, rows) in sections.into_iter().chain(last) {
        out.push_str(&format!("\n{title}\n{}", rows.layout()));
    }
    out
}

/// The part that fits: at most `height` lines of at most `width` characters.
pub fn lines(view: &mut View, samples: &[Sample], width: usize, height: usize) -> Vec<Line> {
    let mut out = vec![Line::heading(headline(samples)), Line::plain(help(view))];
    // Pools and kernels get at most a third of the height.
    let single = if samples.len() > 1 { "" } else { "POOL" };
    let pools = pools(samples).within(width, &LESS_OF_POOLS);
    let kernels = kernels(samples).within(width, &["PEER", single, "SINCE"]);
    for table in [pools, kernels] {
        out.push(Line::plain(String::new()));
        out.extend(section(&table, (height / 6).max(2), 0));
    }
    out.push(Line::plain(String::new()));
    let table = match view.threads {
        true => threads(samples).within(width, &[single, "SINCE"]),
        false => objects(view, samples).within(width, &["KEY", "USED", "RECV/s", single]),
    };
    let room = height.saturating_sub(out.len());
    view.scrolled = view.scrolled.min(table.len().saturating_sub(room));
    out.extend(section(&table, room, view.scrolled));
    out.truncate(height);
    for line in &mut out {
        line.text = line.text.chars().take(width).collect();
    }
    out
}

/// A line on the screen.
#[derive(Clone, PartialEq, Eq)]
pub struct Line {
    /// Its text.
    pub text: String,
    /// It is emphasized.
    pub heading: bool,
}

impl Line {
    fn plain(text: String) -> Line {
        let heading = false;
        Line { text, heading }
    }

    fn heading(text: String) -> Line {
        let heading = true;
        Line { text, heading }
    }
}

/// At most `room` lines of a table, heading included, without the rows that are scrolled out of sight.
fn section(table: &Table, room: usize, scrolled: usize) -> Vec<Line> {
    let all = table.layout();
    let mut lines = all.lines().map(|line| Line::plain(line.into()));
    let heading = lines.next().map(|line| Line::heading(line.text));
    let below: Vec<Line> = lines.skip(scrolled).collect();
    let shown = room.saturating_sub(1);
    let hidden = below.len().saturating_sub(shown);
    let mut out: Vec<Line> = heading.into_iter().chain(below.into_iter().take(shown)).collect();
    if let Some(last) = out.last_mut().filter(|_| hidden > 0) {
        *last = Line::plain(format!("... and {} more", hidden + 1));
    }
    out
}

fn headline(samples: &[Sample]) -> String {
    let members = || samples.iter().flat_map(|sample| &sample.members);
    let dead = members().filter(|member| !member.alive).count();
    let processes: u32 = members().map(|member| member.processes).sum();
    let waiting: usize = samples.iter().map(|sample| sample.waiters.len()).sum();
    let seconds = age(0) % 86400;
    format!(
        "vshmem top  {:02}:{:02}:{:02} UTC  waiting {waiting}, processes {processes}, pools {}, kernels {}{}",
        seconds / 3600,
        seconds / 60 % 60,
        seconds % 60,
        samples.len(),
        members().count() - dead,
        if dead == 0 { String::new() } else { format!(" ({dead} dead)") },
    )
}

/// The keys; what is chosen is in capitals.
fn help(view: &View) -> String {
    let shown = |chosen: bool, word: &str| if chosen { word.to_uppercase() } else { word.into() };
    let orders = [
        (Sort::Rate, "m", "rate"),
        (Sort::Bytes, "b", "bytes"),
        (Sort::Waiting, "w", "waiting"),
        (Sort::Used, "u", "use"),
        (Sort::Id, "i", "id"),
    ];
    let orders = orders.map(|(sort, key, word)| format!("{key} {}", shown(sort == view.sort, word)));
    let (threads, reverse) = (shown(view.threads, "threads"), shown(view.reverse, "reverse"));
    format!("q quit  t {threads}  r {reverse}  sort by: {}", orders.join(", "))
}

/// A pool's name, or the end of its path, of limited length.
fn short(pool: &str) -> String {
    const MAX_CHARS: usize = 24;
    let skipped = pool.chars().count().saturating_sub(MAX_CHARS - 2);
    if skipped > 2 {
        format!("..{}", pool.chars().skip(skipped).collect::<String>())
    } else {
        pool.into()
    }
}

fn rates(rates: Option<Rates>) -> [String; 3] {
    let bytes = rates.map(|r| size::show((r.sent_bytes + r.received_bytes) as u64));
    let number = |rate: fn(Rates) -> f64| or_dash(rates.map(|rates| format!("{:.0}", rate(rates))));
    [number(|r| r.sent), number(|r| r.received), or_dash(bytes)]
}

fn pools(samples: &[Sample]) -> Table {
    let mut table = Table::new(
        "POOL  SIZE  MEMORY  IN SEGMENTS  SEGMENTS  SETS  QUEUES  WAITING  SENT/s  RECV/s  BYTES/s",
    );
    table.rows(samples.iter().map(|sample| {
        let mut row = vec![
            short(&sample.pool),
            size::show(sample.size),
            or_dash(sample.memory.map(size::show)),
            size::show(sample.segment_bytes),
            sample.segments.len().to_string(),
            sample.sets.len().to_string(),
            sample.queues.len().to_string(),
            sample.waiters.len().to_string(),
        ];
        row.extend(rates(sample.rates));
        row
    }));
    table
}

/// Rows of each sample's pool.
fn of_pools<'a, T>(
    heading: &str,
    samples: &'a [Sample],
    list: fn(&'a Sample) -> &'a [T],
    row: fn(&T) -> Vec<String>,
) -> Table {
    let mut table = Table::new(&format!("POOL  {heading}"));
    for sample in samples {
        table.rows(list(sample).iter().map(|item| [vec![short(&sample.pool)], row(item)].concat()));
    }
    table
}

fn kernels(samples: &[Sample]) -> Table {
    of_pools(MEMBER_HEADING, samples, |sample| &sample.members, member_row)
}

fn threads(samples: &[Sample]) -> Table {
    of_pools(WAITER_HEADING, samples, |sample| &sample.waiters, waiter_row)
}

fn row(pool: &str, kind: &str, object: &Object, content: String) -> Row {
    let used = u64::try_from(object.used).ok().filter(|used| *used != 0);
    Row {
        cells: vec![
            short(pool),
            kind.into(),
            format!("{:#010x}", object.key),
            object.id.to_string(),
            content,
            object.waiting.to_string(),
            since(used),
        ],
        rate: 0.0,
        bytes: 0,
        waiting: object.waiting,
        used: object.used,
        id: object.id,
    }
}

fn objects(view: &View, samples: &[Sample]) -> Table {
    let mut rows = Vec::new();
    for Sample { pool, queues, sets, segments, .. } in samples {
        rows.extend(queues.iter().map(|queue| {
            let bytes = size::show(queue.bytes.into());
            let plural = if queue.messages == 1 { "" } else { "s" };
            let content = format!("{} message{plural}, {bytes}", queue.messages);
            let mut row = row(pool, "queue", &queue.object, content);
            row.cells.extend(rates(queue.rates));
            row.rate = queue.rates.map_or(0.0, |r| r.sent + r.received);
            row.bytes = queue.bytes.into();
            row
        }));
        rows.extend(
            sets.iter().map(|set| row(pool, "set", &set.object, format!("{} semaphores", set.count))),
        );
        rows.extend(segments.iter().map(|segment| {
            let content = format!("{}, {} attached", size::show(segment.size), segment.attached);
            Row { bytes: segment.size, ..row(pool, "segment", &segment.object, content) }
        }));
    }
    rows.sort_by(|a, b| match view.reverse {
        true => compare(view.sort, b, a),
        false => compare(view.sort, a, b),
    });
    let mut table = Table::new("POOL  KIND  KEY  ID  CONTENT  WAITING  USED  SENT/s  RECV/s  BYTES/s");
    table.rows(rows.into_iter().map(|row| row.cells));
    table
}

/// Descending order, except for ids. Equal rows keep their order.
fn compare(sort: Sort, a: &Row, b: &Row) -> Ordering {
    match sort {
        Sort::Rate => b.rate.total_cmp(&a.rate).then(b.waiting.cmp(&a.waiting)),
        Sort::Bytes => b.bytes.cmp(&a.bytes),
        Sort::Waiting => b.waiting.cmp(&a.waiting),
        Sort::Used => b.used.cmp(&a.used),
        Sort::Id => a.id.cmp(&b.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vshmem_inspect::participants::{Member, Waiter};
    use vshmem_inspect::processes::Process;
    use vshmem_inspect::rates::Passed;
    use vshmem_inspect::sample::{Queue, Segment};

    fn object(id: i32, waiting: u32) -> Object {
        Object { id, key: 1, uid: 0, gid: 0, mode: 0o600, waiting, used: i64::MAX }
    }

    fn sample() -> Sample {
        let passed = Passed { messages: 0, bytes: 0 };
        let queue = |id, sent| Queue {
            object: object(id, 0),
            messages: 3,
            bytes: 300,
            most: 1,
            sent: passed,
            received: passed,
            sender: None,
            receiver: None,
            rates: Some(Rates { sent, ..Rates::default() }),
        };
        let segment = |id| Segment {
            object: object(id, 0),
            size: u64::MAX,
            attached: u64::MAX,
            removed: false,
            creator: None,
            last: None,
        };
        Sample {
            pool: "work".into(),
            time: 1.0,
            size: 1 << 30,
            memory: None,
            segment_bytes: 5,
            segment_room: 6,
            semaphores: 0,
            heartbeat: 0,
            members: (0..64)
                .map(|member| Member {
                    member,
                    name: "ü".repeat(31),
                    alive: member != 3,
                    here: false,
                    peer: None,
                    since: Some(u64::MAX),
                    processes: 1,
                    waiting: 0,
                })
                .collect(),
            segments: (10..40).map(segment).collect(),
            sets: vec![],
            queues: vec![queue(1, 5.0), queue(2, 900.0), queue(3, f64::NAN)],
            waiters: vec![Waiter {
                kind: "queue",
                id: 1,
                process: Process {
                    pid: 77,
                    kernel: "vm0".into(),
                    namespace: None,
                    hostname: None,
                    pid_here: None,
                    label: "77@vm0".into(),
                },
                alive: true,
                wanted: "a message".into(),
                since: Some(i64::MIN),
            }],
            rates: None,
        }
    }

    #[test]
    fn it_fits_whatever_the_size_is() {
        let samples = [sample()];
        let mut view = View::new(Sort::Rate);
        for (width, height) in [(0, 0), (1, 1), (5, 3), (80, 24), (20, 200), (300, 60)] {
            for threads in [false, true] {
                (view.threads, view.scrolled) = (threads, 1000);
                let lines = lines(&mut view, &samples, width, height);
                assert!(lines.len() <= height, "{width} x {height}");
                assert!(lines.iter().all(|line| line.text.chars().count() <= width));
            }
        }
        assert!(lines(&mut view, &[], 80, 24).len() > 5);
    }

    #[test]
    fn what_matters_fits_80_columns() {
        let mut usual = sample();
        usual.pool = "cluster.default".into();
        usual.members.iter_mut().for_each(|member| member.name = "vm12".into());
        usual.members.iter_mut().for_each(|member| member.since = None);
        usual.segments.iter_mut().for_each(|segment| (segment.size, segment.attached) = (5 << 30, 12));
        let shown = |view: &mut View| {
            let lines = lines(view, &[usual.clone()], 80, 24);
            lines.into_iter().map(|line| line.text).collect::<Vec<_>>()
        };
        let mut view = View::new(Sort::Rate);
        let lines = shown(&mut view);
        assert!(
            lines[0].ends_with("waiting 1, processes 64, pools 1, kernels 63 (1 dead)")
                && lines[1].ends_with("i id"),
            "{lines:?}"
        );
        assert!(lines[1].contains("m RATE, b bytes") && lines[1].contains("t threads"));
        let has = |lines: &[String], heading: &[&str]| {
            let found = lines.iter().any(|line| heading.iter().all(|word| line.contains(word)));
            assert!(found, "{heading:?} in {lines:#?}");
        };
        has(&lines, &["POOL", "MEMORY", "SEGMENTS", "SETS", "QUEUES", "WAITING", "BYTES/s"]);
        has(&lines, &["KERNEL", "STATE", "PROCESSES", "WAITING"]);
        has(&lines, &["KIND", "ID", "CONTENT", "WAITING", "SENT/s", "BYTES/s"]);
        view.threads = true;
        has(&shown(&mut view), &["PROCESS", "WAITS FOR"]);
    }

    #[test]
    fn objects_are_sorted() {
        let samples = [sample()];
        let ids = |view: &View| -> Vec<String> { objects(view, &samples).column(3) };
        let mut view = View::new(Sort::Rate);
        view.sort = Sort::Id;
        assert_eq!(ids(&view)[..4], ["1", "2", "3", "10"]);
        view.reverse = true;
        assert_eq!(ids(&view)[0], "39");
        view = View::new(Sort::Bytes);
        assert_eq!(ids(&view)[0], "10");
        view = View::new(Sort::Rate);
        let busy: Vec<String> = ids(&view).into_iter().filter(|id| id != "3").collect();
        assert_eq!(busy[..2], ["2", "1"]);
    }

    #[test]
    fn long_names_leave_room() {
        assert_eq!(short("cluster.default"), "cluster.default");
        assert_eq!(short(&"x".repeat(24)).len(), 24);
        let path = short("/dev/shm/some/where/deep/down/pool");
        assert!(path.starts_with("..") && path.ends_with("/deep/down/pool") && path.len() == 24);
    }

    #[test]
    fn what_there_is_no_room_for_is_counted() {
        let mut table = Table::new("row 0");
        table.rows((1..10).map(|i| vec![format!("row {i}")]));
        let shown = section(&table, 4, 2);
        let texts: Vec<&str> = shown.iter().map(|line| line.text.as_str()).collect();
        assert_eq!(texts, ["row 0", "row 3", "row 4", "... and 5 more"]);
        assert!(shown[0].heading && !shown[1].heading);
    }
}
