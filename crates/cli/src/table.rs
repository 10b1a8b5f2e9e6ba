//! Tables of text, and rows that several commands print.

use crate::age::{age, show_age};
use std::fmt::Display;
use vshmem_inspect::participants::{Member, Waiter};

/// A table; the first row is its heading.
#[derive(Default)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// A table with this heading, in which two spaces separate the columns.
    pub fn new(heading: &str) -> Table {
        Table(vec![heading.split("  ").map(String::from).collect()])
    }

    /// Adds a row.
    pub fn row(&mut self, cells: &[&dyn Display]) {
        self.0.push(cells.iter().map(ToString::to_string).collect());
    }

    /// Adds rows.
    pub fn rows(&mut self, rows: impl IntoIterator<Item = Vec<String>>) {
        self.0.extend(rows);
    }

    /// The table with these columns alone.
    pub fn columns(&self, names: &[&str]) -> Table {
        let heading = self.0.first();
        let at = |name: &&str| heading.and_then(|heading| heading.iter().position(|other| other == name));
        let kept: Vec<usize> = names.iter().filter_map(at).collect();
        Table(self.0.iter().map(|row| kept.iter().filter_map(|at| row.get(*at).cloned()).collect()).collect())
    }

    /// The table without the first of these columns, as many as it takes to be no wider than that.
    pub fn within(mut self, width: usize, less_important: &[&str]) -> Table {
        for name in less_important {
            if self.layout().lines().all(|line| line.chars().count() <= width) {
                break;
            }
            let heading = self.0.first();
            let Some(at) = heading.and_then(|cells| cells.iter().position(|cell| cell == name)) else {
                continue;
            };
            self.0.iter_mut().filter(|row| at < row.len()).for_each(|row| drop(row.remove(at)));
        }
        self
    }

    /// The number of rows, with the heading.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The cells of a column, without the heading.
    #[cfg(test)]
    pub fn column(&self, index: usize) -> Vec<String> {
        self.0[1..].iter().map(|row| row[index].clone()).collect()
    }

    /// The table in columns.
    pub fn layout(&self) -> String {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |column: usize| {
            let cells = self.0.iter().filter_map(|row| row.get(column));
            cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for row in &self.0 {
            let mut line = String::new();
            for (cell, width) in row.iter().zip(&widths) {
                line.push_str(&format!("{cell:width$}  "));
            }
            out.push_str(line.trim_end());
            out.push('\n');
        }
        out
    }
}

/// A cell that may have no value.
pub fn or_dash(value: Option<impl Display>) -> String {
    value.map_or_else(|| "-".into(), |value| value.to_string())
}

/// The time since a second of the epoch, as text.
pub fn since(second: Option<u64>) -> String {
    or_dash(second.map(|second| show_age(age(second))))
}

fn state(alive: bool) -> String {
    if alive { "alive" } else { "dead" }.into()
}

/// The heading of [`member_row`].
pub const MEMBER_HEADING: &str = "KERNEL  STATE  PEER  SINCE  PROCESSES  WAITING";

/// A kernel that uses a pool.
pub fn member_row(member: &Member) -> Vec<String> {
    vec![
        member.name.clone(),
        state(member.alive),
        or_dash(member.peer),
        since(member.since),
        member.processes.to_string(),
        member.waiting.to_string(),
    ]
}

/// The heading of [`waiter_row`].
pub const WAITER_HEADING: &str = "KIND  ID  PROCESS  STATE  SINCE  WAITS FOR";

/// A thread that waits in a pool.
pub fn waiter_row(waiter: &Waiter) -> Vec<String> {
    vec![
        waiter.kind.into(),
        waiter.id.to_string(),
        waiter.process.label.clone(),
        state(waiter.alive),
        since(waiter.since.and_then(|since| u64::try_from(since).ok())),
        waiter.wanted.clone(),
    ]
}

#[cfg(test)]
mod tests {
    use super::Table;

    #[test]
    fn columns_line_up() {
        let mut table = Table::new("NAME  N");
        table.row(&[&"x", &10]);
        assert_eq!(table.layout(), "NAME  N\nx     10\n");
        assert_eq!(table.columns(&["N"]).layout(), "N\n10\n");
        assert_eq!(Table::default().layout(), "");
    }

    #[test]
    fn what_is_less_important_gives_way() {
        let table = || {
            let mut table = Table::new("NAME  KEY  AGE");
            table.row(&[&"x", &10, &1]);
            table
        };
        assert_eq!(table().within(14, &["KEY"]).layout(), table().layout());
        assert_eq!(table().within(13, &["KEY", "AGE"]).layout(), "NAME  AGE\nx     1\n");
        assert_eq!(table().within(1, &["NONE", "AGE"]).layout(), "NAME  KEY\nx     10\n");
    }
}
