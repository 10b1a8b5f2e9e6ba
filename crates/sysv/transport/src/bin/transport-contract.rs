//! The program `transport-contract POOL`, which checks that the pool's transport does what transports
//! promise.
//!
//! POOL is a name or a path, as in `VSHMEM_POOL`. The pool must be one that nobody uses and whose contents
//! don't matter. Prints one line for each check, and exits with 1 if any of them failed.

use std::os::unix::ffi::OsStrExt;
use std::process::ExitCode;

use vshmem_transport::contract::{run, Subject, Verdict};
use vshmem_transport::{resolve, transport_of};

fn main() -> ExitCode {
    let mut arguments = std::env::args_os().skip(1);
    let (Some(pool), None) = (arguments.next(), arguments.next()) else {
        eprintln!(
            "usage: transport-contract POOL\nThe last pages of the pool are overwritten: use one of its own."
        );
        return ExitCode::from(2);
    };
    let pool = match resolve(pool.as_bytes()) {
        Ok(pool) => pool,
        Err(error) => {
            eprintln!("transport-contract: {}: {error}", pool.to_string_lossy());
            return ExitCode::from(2);
        }
    };
    let transport = transport_of(&pool);
    println!("transport {}, pool {pool}", transport.name());
    let good = run(&Subject { transport, pool: &pool }, &mut |name, verdict| match verdict {
        Verdict::Passed => println!("ok    {name}"),
        Verdict::Skipped(reason) => println!("skip  {name}: {reason}"),
        Verdict::Failed(message) => println!("FAIL  {name}: {message}"),
    });
    ExitCode::from(u8::from(!good))
}
