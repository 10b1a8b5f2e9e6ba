//! Addresses of PCI functions.

use schemars::{json_schema, JsonSchema, Schema, SchemaGenerator};
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

/// The place of a PCI function: `0000:01:00.0`, or without its domain `01:00.0`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address {
    /// The domain, or segment.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device, or slot: 0 to 31.
    pub device: u8,
    /// The function: 0 to 7.
    pub function: u8,
}

impl Address {
    /// True if another function is in the same slot, and so of the same device.
    pub fn is_beside(self, other: Address) -> bool {
        (self.domain, self.bus, self.device) == (other.domain, other.bus, other.device)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Address { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Address, String> {
        read(text).ok_or_else(|| format!("{text:?} is no address of a PCI function, as 0000:01:00.0"))
    }
}

fn read(text: &str) -> Option<Address> {
    let (rest, function) = text.split_once('.')?;
    let mut parts = rest.rsplit(':');
    let (device, bus) = (parts.next()?, parts.next()?);
    let domain = parts.next().unwrap_or("0");
    let number = |text: &str, longest: usize| {
        let fits = !text.is_empty() && text.len() <= longest && text.bytes().all(|c| c.is_ascii_hexdigit());
        fits.then(|| u32::from_str_radix(text, 16).ok()).flatten()
    };
    let address = Address {
        domain: number(domain, 8)?,
        bus: number(bus, 2)? as u8,
        device: number(device, 2)? as u8,
        function: number(function, 1)? as u8,
    };
    (parts.next().is_none() && address.device < 32 && address.function < 8).then_some(address)
}

impl TryFrom<String> for Address {
    type Error = String;

    fn try_from(text: String) -> Result<Address, String> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> String {
        address.to_string()
    }
}

impl JsonSchema for Address {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Address".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string", "examples": ["0000:01:00.0"] })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_shown() {
        for (text, shown) in [
            ("0000:01:00.0", "0000:01:00.0"),
            ("3b:1f.7", "0000:3b:1f.7"),
            ("10000:e1:00.0", "10000:e1:00.0"),
        ] {
            assert_eq!(text.parse::<Address>().unwrap().to_string(), shown);
        }
        for text in
            ["", "01:00", "01:20.0", "01:00.8", "01:00.", "0:0:0:0.0", "001:00.0", "01:0x.0", "+1:00.0"]
        {
            assert!(text.parse::<Address>().is_err(), "{text}");
        }
        let (one, other): (Address, Address) = ("01:00.0".parse().unwrap(), "01:00.1".parse().unwrap());
        assert!(one.is_beside(other) && !one.is_beside("01:01.0".parse().unwrap()));
    }
}
