//! The keys that go to the pool: `VSHMEM_KEYS`.

const MOST_RANGES: usize = 64;

/// The mistake: the entries cannot be parsed.
pub const MALFORMED: &str =
    "VSHMEM_KEYS can't be understood; it takes all, none, private, keys such as 1234 or 0x4d2, and ranges \
     such as 1000-1999, separated by commas";
/// The mistake: there are more entries than fit.
pub const TOO_MANY: &str = "VSHMEM_KEYS has more than 64 keys and ranges; join some into ranges";

/// A set of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keys {
    all: bool,
    private: bool,
    ranges: [(i64, i64); MOST_RANGES],
    count: usize,
}

impl Keys {
    /// No key.
    pub const NONE: Keys = Keys { all: false, private: false, ranges: [(0, 0); MOST_RANGES], count: 0 };
    /// Every key.
    pub const ALL: Keys = Keys { all: true, ..Keys::NONE };

    /// Is every key in it?
    #[inline]
    pub fn has_all(&self) -> bool {
        self.all
    }

    /// Is any key in it?
    pub fn has_any(&self) -> bool {
        self.all || self.private || self.count > 0
    }

    /// Is this key in it?
    pub fn has(&self, key: i32) -> bool {
        if self.all {
            return true;
        }
        if key == libc::IPC_PRIVATE {
            return self.private;
        }
        // A key is 32 bits; people write it with or without sign.
        let (signed, unsigned) = (i64::from(key), i64::from(key as u32));
        let hit =
            |(low, high): &(i64, i64)| (*low..=*high).contains(&signed) || (*low..=*high).contains(&unsigned);
        self.ranges[..self.count].iter().any(hit)
    }

    /// The keys of `VSHMEM_KEYS`, or the mistake in it.
    pub fn parse(text: &[u8]) -> Result<Keys, &'static str> {
        let mut keys = Keys::NONE;
        let mut none = false;
        for (i, part) in text.split(|b| *b == b',').enumerate() {
            match part.trim_ascii() {
                b"all" => keys.all = true,
                b"private" => keys.private = true,
                b"none" if i == 0 => none = true,
                part => {
                    let range = parse_range(part).ok_or(MALFORMED)?;
                    *keys.ranges.get_mut(keys.count).ok_or(TOO_MANY)? = range;
                    keys.count += 1;
                }
            }
        }
        if none && keys != Keys::NONE {
            return Err(MALFORMED);
        }
        Ok(keys)
    }
}

/// `a` or `a-b`. The dash is looked for from the second character on, for keys may be negative.
fn parse_range(text: &[u8]) -> Option<(i64, i64)> {
    let dash = text.iter().skip(1).position(|b| *b == b'-').map(|at| at + 1);
    let (low, high) = match dash {
        None => (parse_number(text)?, parse_number(text)?),
        Some(at) => (parse_number(&text[..at])?, parse_number(&text[at + 1..])?),
    };
    (low <= high).then_some((low, high))
}

/// A key as people write it, decimal or hexadecimal.
fn parse_number(text: &[u8]) -> Option<i64> {
    let text = core::str::from_utf8(text).ok()?.trim();
    let digits = text.strip_prefix('-');
    let (sign, digits) = digits.map_or((1, text), |digits| (-1, digits));
    let hexadecimal = digits.strip_prefix("0x").or(digits.strip_prefix("0X"));
    let (radix, digits) = hexadecimal.map_or((10, digits), |digits| (16, digits));
    if digits.starts_with(['+', '-']) {
        return None;
    }
    let value = sign * i64::from_str_radix(digits, radix).ok()?;
    (i64::from(i32::MIN)..=i64::from(u32::MAX)).contains(&value).then_some(value)
}
