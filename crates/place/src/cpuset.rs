//! Sets of logical processors (hwloc: processing units, PUs), or of memory nodes, by the numbers that Linux
//! gives them.

use serde::{Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;

/// A set of numbers. As text it is Linux's list format (`0-3,8`, cpuset(7)).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CpuSet(BTreeSet<u32>);

impl CpuSet {
    /// The smallest number.
    pub fn first(&self) -> Option<u32> {
        self.0.first().copied()
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a number is in it.
    pub fn contains(&self, number: u32) -> bool {
        self.0.contains(&number)
    }

    /// All numbers, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.0.iter().copied()
    }
}

impl FromIterator<u32> for CpuSet {
    fn from_iter<T: IntoIterator<Item = u32>>(numbers: T) -> CpuSet {
        CpuSet(numbers.into_iter().collect())
    }
}

impl Extend<u32> for CpuSet {
    fn extend<T: IntoIterator<Item = u32>>(&mut self, numbers: T) {
        self.0.extend(numbers);
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.iter().peekable();
        let mut comma = "";
        while let Some(first) = rest.next() {
            let mut last = first;
            while let Some(next) = rest.next_if(|next| *next == last + 1) {
                last = next;
            }
            match first == last {
                true => write!(f, "{comma}{first}")?,
                false => write!(f, "{comma}{first}-{last}")?,
            }
            comma = ",";
        }
        Ok(())
    }
}

impl Serialize for CpuSet {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_written_as_linux_does() {
        let text = |numbers: &[u32]| numbers.iter().copied().collect::<CpuSet>().to_string();
        assert_eq!(text(&[]), "");
        assert_eq!(text(&[3]), "3");
        assert_eq!(text(&[8, 0, 1, 2, 3]), "0-3,8");
        assert_eq!(text(&[1, 0, 5, 7, 6]), "0-1,5-7");
    }
}
