//! A pool's System V limits by name, as sysctl and the manual pages call them.

use vshmem_pool::Limits;

/// All names.
pub const NAMES: [&str; 10] =
    ["shmmax", "shmall", "shmmni", "semmsl", "semmns", "semopm", "semmni", "msgmax", "msgmnb", "msgmni"];

/// A limit and its value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    name: &'static str,
    value: u64,
}

/// The field of a limit.
enum Slot<'a> {
    Long(&'a mut u64),
    Short(&'a mut u32),
}

impl Limit {
    /// The limit of this name.
    pub fn new(name: &str, value: u64) -> Result<Limit, String> {
        let name = NAMES
            .into_iter()
            .find(|known| *known == name)
            .ok_or_else(|| format!("there is no limit {name:?}; there are {}", NAMES.join(", ")))?;
        if value == 0 {
            return Err(format!("{name} can't be 0"));
        }
        let limit = Limit { name, value };
        if limit.set(&mut Limits::default()) {
            Ok(limit)
        } else {
            Err(format!("{name} can be {} at most", u32::MAX))
        }
    }

    /// These limits, with the chosen ones replaced.
    pub fn all(chosen: &[Limit], mut limits: Limits) -> Limits {
        for limit in chosen {
            limit.set(&mut limits);
        }
        limits
    }

    /// Sets the limit; false, without effect, if the value does not fit.
    pub(crate) fn set(&self, limits: &mut Limits) -> bool {
        match slot(limits, self.name) {
            Slot::Long(long) => *long = self.value,
            Slot::Short(short) => match u32::try_from(self.value) {
                Ok(value) => *short = value,
                Err(_) => return false,
            },
        }
        true
    }

    /// An error if a pool with these limits is more restrictive than what was chosen.
    pub fn check(&self, mut limits: Limits) -> Result<(), String> {
        let most = match slot(&mut limits, self.name) {
            Slot::Long(long) => *long,
            Slot::Short(short) => u64::from(*short),
        };
        let Limit { name, value } = self;
        if most >= *value {
            return Ok(());
        }
        Err(format!("{value} is too much for {name}; a pool of this size can have {most} at most"))
    }
}

fn slot<'a>(limits: &'a mut Limits, name: &'static str) -> Slot<'a> {
    match name {
        "shmmax" => Slot::Long(&mut limits.shmmax),
        "shmall" => Slot::Long(&mut limits.shmall),
        "shmmni" => Slot::Short(&mut limits.shmmni),
        "semmsl" => Slot::Short(&mut limits.semmsl),
        "semmns" => Slot::Short(&mut limits.semmns),
        "semopm" => Slot::Short(&mut limits.semopm),
        "semmni" => Slot::Short(&mut limits.semmni),
        "msgmax" => Slot::Short(&mut limits.msgmax),
        "msgmnb" => Slot::Short(&mut limits.msgmnb),
        _ => Slot::Short(&mut limits.msgmni),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_sets_a_limit_of_its_own() {
        let mut limits = Limits::default();
        for (value, name) in (7..).zip(NAMES) {
            assert!(Limit::new(name, value).unwrap().set(&mut limits));
        }
        for (value, name) in (7..).zip(NAMES) {
            assert_eq!(Limit::new(name, value).unwrap().check(limits), Ok(()));
            assert!(Limit::new(name, value + 1).unwrap().check(limits).is_err());
        }
    }

    #[test]
    fn invalid_limits_are_refused() {
        assert!(Limit::new("semmax", 1).unwrap_err().contains("semmni"));
        assert!(Limit::new("semmni", 0).is_err());
        assert!(Limit::new("semmni", 1 << 32).is_err());
        assert!(Limit::new("shmmax", 1 << 32).is_ok());
    }
}
