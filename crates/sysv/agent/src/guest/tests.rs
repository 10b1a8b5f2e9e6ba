//! Tests of the front end in a machine that is given no pools.

use super::protocol::DriverStatus;
use super::*;
use vshmem_transport::{DiscoverError, Handle, OpenError};
use vshmem_transport::{PoolRef, Transport};

/// A machine that is given no pools.
#[derive(Debug)]
pub struct NoDevices;

impl Transport for NoDevices {
    fn name(&self) -> &'static str {
        "none"
    }

    fn discover(&self, _: &mut dyn FnMut(&PoolRef) -> bool) -> std::result::Result<(), DiscoverError> {
        Ok(())
    }

    fn open(&self, _: &PoolRef) -> std::result::Result<Handle, OpenError> {
        Err(OpenError::WrongTransport)
    }
}

impl Devices for NoDevices {
    fn transport(&self) -> &'static dyn Transport {
        &NoDevices
    }

    fn is_driver_pending(&self, _: &PoolRef) -> bool {
        false
    }

    fn has_driver(&self, _: &PoolRef) -> bool {
        false
    }

    fn set_owner(&self, _: &PoolRef, _: u32) -> io::Result<()> {
        Ok(())
    }

    fn driver(&self) -> DriverStatus {
        DriverStatus::Loaded(false)
    }
}

#[test]
fn invalid_lines_are_refused_or_ignored() {
    let mut pools = Pools::new(&[&NoDevices], None);
    for garbage in ["", "x", "[]", "{}", r#"{"id":-1,"status":{}}"#, "\u{0}{\"id\":1}"] {
        assert_eq!(respond(garbage.as_bytes(), &mut pools), None, "{garbage}");
    }
    let refused = respond(br#"{"id":5}"#, &mut pools).expect("a response");
    assert!(refused.starts_with(r#"{"id":5,"error""#), "{refused}");
    let status = respond(br#"{"id":6,"status":{}}"#, &mut pools).expect("a response");
    let status: GuestStatus = serde_json::from_str(&status).expect("a status");
    assert_eq!((status.id, status.kernel), (6, kernel_version()));
}
