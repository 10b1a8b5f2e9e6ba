//! Ages of machines and pools, in seconds and as text.

/// Seconds since this second of the epoch.
pub fn age(since: u64) -> u64 {
    vshmem_agent::now().saturating_sub(since)
}

/// An age as short text.
pub fn show_age(seconds: u64) -> String {
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86400),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_short() {
        assert_eq!(show_age(119), "119s");
        assert_eq!(show_age(120), "2m");
        assert_eq!(show_age(7200), "2h");
        assert_eq!(show_age(172_800), "2d");
    }
}
