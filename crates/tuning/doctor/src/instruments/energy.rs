//! The energy that the processors' packages have used, by their own count (RAPL).

use crate::system::{System, Unseen};

const AT: &str = "sys/class/powercap";

/// Counts of packages, in microjoules, each with the value at which it begins anew.
#[derive(Clone, Debug, PartialEq)]
pub struct Energy(Vec<(u64, u64)>);

/// Reads them; `None`: this kernel has none, as in a machine.
///
/// # Errors
/// Only root may read them.
pub fn read(system: &System) -> Result<Option<Energy>, Unseen> {
    let mut counts = Vec::new();
    // Of `intel-rapl:0` and `intel-rapl:0:1` the first is a package, the second a part of it. AMD's are
    // called so, too.
    for name in system.names(AT)?.iter().filter(|name| name.starts_with("intel-rapl:")) {
        let number = |file: &str| -> Result<Option<u64>, Unseen> {
            Ok(system.text(&format!("{AT}/{name}/{file}"))?.and_then(|text| text.trim().parse().ok()))
        };
        if name.matches(':').count() == 1 {
            counts.extend(number("energy_uj")?.zip(number("max_energy_range_uj")?));
        }
    }
    Ok((!counts.is_empty()).then_some(Energy(counts)))
}

impl Energy {
    /// Joules since an earlier reading of the same packages.
    pub fn since(&self, earlier: &Energy) -> f64 {
        let used = self.0.iter().zip(&earlier.0).map(|((now, range), (then, _))| match now >= then {
            true => now - then,
            false => range.saturating_sub(*then) + now,
        });
        used.sum::<u64>() as f64 / 1e6
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::tree::Tree;

    #[test]
    fn packages_count_and_their_parts_do_not() {
        let tree = Tree::new("");
        assert_eq!(read(tree.system()).unwrap(), None);
        let put = |name: &str, count: u64| {
            tree.put(&format!("{AT}/{name}/energy_uj"), &format!("{count}\n"));
            tree.put(&format!("{AT}/{name}/max_energy_range_uj"), "262143328850\n");
        };
        put("intel-rapl:0", 1_000_000);
        put("intel-rapl:1", 262_143_328_850);
        put("intel-rapl:0:0", 5);
        let before = read(tree.system()).unwrap().unwrap();
        put("intel-rapl:0", 3_500_000);
        put("intel-rapl:1", 500_000);
        put("intel-rapl:0:0", 900_000_000);
        let now = read(tree.system()).unwrap().unwrap();
        assert!((now.since(&before) - 3.0).abs() < 1e-9, "{}", now.since(&before));
    }
}
