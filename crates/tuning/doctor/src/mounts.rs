//! File systems that are mounted, of /proc/self/mounts.

/// The options of what is mounted on a directory last.
pub fn options<'a>(mounts: &'a str, point: &str) -> Option<&'a str> {
    let mut lines = mounts.lines().map(|line| line.split(' '));
    let words = lines.rfind(|words| words.clone().nth(1) == Some(point))?;
    words.clone().nth(3)
}

/// The option `huge` of a tmpfs, which the kernel leaves out where it is `never`.
pub fn huge(options: &str) -> &str {
    options.split(',').find_map(|option| option.strip_prefix("huge=")).unwrap_or("never")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_mount_counts() {
        let mounts = "tmpfs /dev/shm tmpfs rw,huge=always 0 0\ntmpfs / tmpfs rw 0 0\ntmpfs /dev/shm tmpfs rw,nodev 0 0\n";
        assert_eq!(options(mounts, "/dev/shm"), Some("rw,nodev"));
        assert_eq!(
            (options(mounts, "/dev"), huge("rw,nodev"), huge("rw,huge=advise")),
            (None, "never", "advise")
        );
    }
}
