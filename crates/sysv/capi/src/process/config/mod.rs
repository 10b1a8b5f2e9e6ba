//! The configuration by the environment: which pool, and which keys go to it. Read once, when the library is
//! loaded.

mod keys;

use crate::process::log::level::Level;
use core::ffi::{c_char, CStr};
use keys::Keys;
use std::sync::OnceLock;
use vshmem_transport::ids::IdMap;
use vshmem_transport::{PoolRef, Text};

/// Bytes of a pool's name or path, at the most.
pub const MOST_NAME_BYTES: usize = 1024;
const MIB: u64 = 1 << 20;

/// A pool's name, or a path if it contains a slash.
pub type PoolName = Text<{ MOST_NAME_BYTES + 1 }>;

/// The whole configuration, in fixed storage.
pub struct Config {
    /// The pool that is used unless the program opens another.
    pub pool: PoolName,
    /// Size of a local pool that is made at first use; `None`: the default.
    pub pool_size: Option<u64>,
    /// The map of this kernel's users to those in pools; `None`: a file has it.
    pub uid_map: Option<IdMap>,
    /// The map of this kernel's groups to those in pools; `None`: a file has it.
    pub gid_map: Option<IdMap>,
    /// The level of the messages that are written to the log.
    pub log_level: Level,
    /// The log's file; empty: standard error.
    pub log_file: PoolName,
    keys: Keys,
    /// Are `dlopen`, `dlmopen` and `dlsym` left as they are?
    keeps_dl: bool,
    /// The mistake in the environment for which no call can be served.
    mistake: Option<&'static str>,
}

/// Mistakes in the environment, besides those in the keys.
mod mistake {
    pub const POOL: &str =
        "VSHMEM_POOL must be a name of up to 64 letters, digits, dots, dashes and underscores, or a path";
    pub const POOL_SIZE: &str =
        "VSHMEM_POOL_SIZE must be a number of bytes of at least 1M; K, M, G and T may follow it";
    pub const UID_MAP: &str =
        "VSHMEM_UID_MAP must be up to 32 times three numbers, INSIDE OUTSIDE COUNT, with commas between \
         them, that don't overlap";
    pub const GID_MAP: &str =
        "VSHMEM_GID_MAP must be up to 32 times three numbers, INSIDE OUTSIDE COUNT, with commas between \
         them, that don't overlap";
    pub const DL: &str = "VSHMEM_DL must be take or keep";
    pub const LOG: &str =
        "VSHMEM_LOG must be off, error, warn, info or debug; a colon and a file may follow it";
}

impl Config {
    const EMPTY: Config = Config {
        pool: PoolName::new(),
        pool_size: None,
        uid_map: None,
        gid_map: None,
        log_level: Level::Off,
        log_file: PoolName::new(),
        keys: Keys::NONE,
        keeps_dl: false,
        mistake: None,
    };

    /// The mistake in the environment, if there is one.
    #[inline]
    pub fn mistake(&self) -> Option<&'static str> {
        self.mistake
    }

    /// Do IPC objects of this key go to the pool?
    pub fn takes(&self, key: i32) -> bool {
        self.keys.has(key)
    }

    /// Does every IPC object go to the pool?
    #[inline]
    pub fn takes_all(&self) -> bool {
        self.keys.has_all()
    }

    /// The keys that go to the pool, as the beginning of a sentence.
    pub fn keys_in_words(&self) -> &'static str {
        match (self.takes_all(), self.takes_any()) {
            (true, _) => "all System V calls go",
            (false, true) => "calls go by VSHMEM_KEYS to the kernel, or",
            (false, false) => "no call goes",
        }
    }

    /// Can an IPC object of the pool come out of the calls that have libc's names?
    pub fn takes_any(&self) -> bool {
        self.keys.has_any()
    }

    /// Do libraries that are opened, and names that are looked up, lead to the pool, too?
    pub fn takes_lookups(&self) -> bool {
        self.takes_any() && !self.keeps_dl
    }

    /// The configuration by the variables of which `env` has the values.
    fn of(env: impl Fn(&CStr) -> Option<&'static [u8]>) -> Config {
        let mut config = Config::EMPTY;
        let mut mistake = None;
        let pool = env(c"VSHMEM_POOL");
        match parse_pool(pool.unwrap_or(b"default")) {
            Some(name) => config.pool = name,
            None => mistake = Some(mistake::POOL),
        }
        match env(c"VSHMEM_POOL_SIZE").map(parse_size) {
            None => {}
            Some(Some(size)) if size >= MIB => config.pool_size = Some(size),
            Some(_) => mistake = Some(mistake::POOL_SIZE),
        }
        match env(c"VSHMEM_UID_MAP").map(IdMap::from_text).transpose() {
            Ok(map) => config.uid_map = map,
            Err(_) => mistake = Some(mistake::UID_MAP),
        }
        match env(c"VSHMEM_GID_MAP").map(IdMap::from_text).transpose() {
            Ok(map) => config.gid_map = map,
            Err(_) => mistake = Some(mistake::GID_MAP),
        }
        match env(c"VSHMEM_DL") {
            None | Some(b"take") => {}
            Some(b"keep") => config.keeps_dl = true,
            Some(_) => mistake = Some(mistake::DL),
        }
        match env(c"VSHMEM_LOG").map(parse_log) {
            None => {}
            Some(Some((level, file))) => (config.log_level, config.log_file) = (level, file),
            // Said where it is looked for.
            Some(None) => (config.log_level, mistake) = (Level::Error, Some(mistake::LOG)),
        }
        let preload = env(c"LD_PRELOAD").unwrap_or_default();
        let is_preloaded = preload.windows(9).any(|part| part == b"libvshmem");
        match env(c"VSHMEM_KEYS").map(Keys::parse) {
            None if is_preloaded || pool.is_some() => config.keys = Keys::ALL,
            None => {}
            Some(Ok(keys)) => config.keys = keys,
            Some(Err(why)) => mistake = Some(why),
        }
        if mistake.is_some() {
            config.keys = Keys::ALL; // whatever was meant: every call shall say that it can't be served
        }
        config.mistake = mistake;
        config
    }
}

/// A pool's name, or its path.
fn parse_pool(text: &[u8]) -> Option<PoolName> {
    if text.contains(&b'/') {
        return absolute(text);
    }
    let mut name = PoolName::new();
    name.push(PoolRef::named(text).ok()?.name())?;
    Some(name)
}

/// A path, made absolute now: the program may change its directory before the first use.
fn absolute(path: &[u8]) -> Option<PoolName> {
    let mut text = PoolName::new();
    text.push(PoolRef::at(path).ok()?.path().to_bytes())?;
    Some(text)
}

/// `LEVEL` or `LEVEL:FILE`.
fn parse_log(text: &[u8]) -> Option<(Level, PoolName)> {
    let mut parts = text.splitn(2, |b| *b == b':');
    let level = Level::from_text(parts.next()?)?;
    let file = parts.next().map_or(Some(PoolName::new()), absolute)?;
    Some((level, file))
}

/// A size in bytes, with K, M, G or T for powers of 1024.
pub fn parse_size(text: &[u8]) -> Option<u64> {
    let text = text.trim_ascii();
    let last = text.last()?.to_ascii_uppercase();
    let (digits, shift) = match b"KMGT".iter().position(|unit| *unit == last) {
        Some(unit) => (&text[..text.len() - 1], 10 * (unit + 1)),
        None => (text, 0),
    };
    if !digits.first()?.is_ascii_digit() {
        return None;
    }
    let number: u64 = core::str::from_utf8(digits).ok()?.parse().ok()?;
    number.checked_mul(1 << shift)
}

static CONFIG: OnceLock<Config> = OnceLock::new();

/// The configuration. Loads it if the library's constructor has not run yet (a constructor that ran earlier
/// calls us).
#[inline]
pub fn config() -> &'static Config {
    CONFIG.get().unwrap_or_else(load)
}

/// Reads the environment, once. With signals blocked, so that a handler never waits for its own thread.
/// Threads can't exist before the constructor has run, unless an earlier constructor made one.
#[cold]
pub fn load() -> &'static Config {
    let mask = crate::process::raw::block_signals();
    let config = CONFIG.get_or_init(|| Config::of(variable));
    crate::process::raw::restore_signals(mask);
    config
}

extern "C" {
    /// getenv(3), but nothing in a program that runs with raised privileges.
    fn secure_getenv(name: *const c_char) -> *const c_char;
}

fn variable(name: &CStr) -> Option<&'static [u8]> {
    // SAFETY: the name is a C string; what comes back is one too, read before the program can change it.
    unsafe {
        let value = secure_getenv(name.as_ptr());
        (!value.is_null()).then(|| CStr::from_ptr(value).to_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The configuration with these variables.
    fn under(variables: &[(&CStr, &'static str)]) -> Config {
        Config::of(|name| {
            let value = variables.iter().find(|(its, _)| *its == name);
            value.map(|(_, value)| value.as_bytes())
        })
    }

    const PRELOAD: (&CStr, &str) = (c"LD_PRELOAD", "other.so /usr/lib/libvshmem.so");

    fn with(pool: Option<&'static str>, keys: Option<&'static str>, preloaded: bool) -> Config {
        let pool = pool.map(|pool| (c"VSHMEM_POOL", pool));
        let keys = keys.map(|keys| (c"VSHMEM_KEYS", keys));
        let all = [pool, keys, preloaded.then_some(PRELOAD)];
        under(&all.into_iter().flatten().collect::<Vec<_>>())
    }

    #[test]
    fn a_map_of_ids_is_read_or_refused() {
        let with_map = |uid_map: &'static str| under(&[(c"VSHMEM_UID_MAP", uid_map), PRELOAD]);
        let map = with_map("0 100000 10").uid_map.expect("a map");
        assert_eq!(map.outside(3), 100_003);
        assert_eq!(with_map("0 100000").mistake(), Some(mistake::UID_MAP));
    }

    #[test]
    fn lookups_are_taken_where_objects_are() {
        let with_dl = |dl: &'static str, preloaded: bool| {
            let variables = [(c"VSHMEM_DL", dl), PRELOAD];
            under(&variables[..1 + usize::from(preloaded)])
        };
        assert!(with(None, None, true).takes_lookups());
        assert!(!with(None, Some("none"), true).takes_lookups());
        assert!(with_dl("take", true).takes_lookups());
        assert!(!with_dl("take", false).takes_lookups());
        assert!(!with_dl("keep", true).takes_lookups());
        assert_eq!(with_dl("", true).mistake(), Some(mistake::DL));
    }

    #[test]
    fn a_log_has_a_level_and_perhaps_a_file() {
        let with_log = |log: &'static str| under(&[(c"VSHMEM_LOG", log), PRELOAD]);
        assert_eq!(with(None, None, true).log_level, Level::Off);
        let c = with_log("info");
        assert_eq!((c.log_level, c.log_file.bytes()), (Level::Info, &b""[..]));
        let c = with_log("debug:/var/log/a:b");
        assert_eq!((c.log_level, c.log_file.bytes()), (Level::Debug, &b"/var/log/a:b"[..]));
        assert!(with_log("warn:here").log_file.bytes().ends_with(b"/here"));
        for wrong in ["", "loud", "info:", ":x"] {
            assert_eq!(with_log(wrong).mistake(), Some(mistake::LOG), "{wrong}");
        }
    }

    #[test]
    fn preloading_alone_takes_everything_to_the_default_pool() {
        let c = with(None, None, true);
        assert_eq!(c.pool.bytes(), b"default");
        assert!(c.takes_all() && c.takes(0) && c.takes(-5) && c.mistake().is_none());
    }

    #[test]
    fn linking_alone_takes_nothing() {
        let c = with(None, None, false);
        assert!(!c.takes_any() && !c.takes(0) && !c.takes(1));
    }

    #[test]
    fn keys_combine() {
        let c = with(Some("p"), Some("private, 5,0x10-0x20 ,-3--1"), false);
        assert!(c.mistake().is_none());
        for key in [0, 5, 16, 32, -1, -3] {
            assert!(c.takes(key), "{key}");
        }
        for key in [4, 6, 15, 33, -4, i32::MIN, i32::MAX] {
            assert!(!c.takes(key), "{key}");
        }
        assert!(!with(None, Some("7"), false).takes(0));
        assert!(with(None, Some("0xfffffff0-0xffffffff"), false).takes(-1));
        assert!(!with(None, Some("none"), true).takes_any());
    }

    #[test]
    fn mistakes_are_named_and_nothing_is_guessed() {
        for keys in ["", "alles", "1,,2", "9-1", "0x", "5-", "99999999999", "none,5", "5,none", "1 2", "+1"] {
            let c = with(None, Some(keys), true);
            assert_eq!(c.mistake(), Some(keys::MALFORMED), "{keys:?}");
            assert!(c.takes(1));
        }
        let many: &'static str = vec!["1"; 65].join(",").leak();
        assert_eq!(with(None, Some(many), true).mistake(), Some(keys::TOO_MANY));
        for pool in ["", "a b", "a:b", "/nul/\u{fc}\0"] {
            assert_eq!(with(Some(pool), None, true).mistake(), Some(mistake::POOL), "{pool:?}");
        }
        assert_eq!(with(Some("/tmp/x y"), None, true).mistake(), None);
        assert!(with(Some("./x"), None, true).pool.bytes().starts_with(b"/"), "made absolute at once");
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size(b"1048576"), Some(1 << 20));
        assert_eq!(parse_size(b"64m"), Some(64 << 20));
        assert_eq!(parse_size(b"2G"), Some(2 << 30));
        for bad in ["", "G", "-1", "+5", "1.5G", "99999999999T", "1 G"] {
            assert_eq!(parse_size(bad.as_bytes()), None, "{bad:?}");
        }
    }
}
