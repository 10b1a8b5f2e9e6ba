//! The commands `vshmem grant` and `vshmem revoke`.

use crate::args::ClusterArg;
use crate::complete::values;
use crate::output::{each, print};
use clap::Args;
use schemars::JsonSchema;
use serde::Serialize;
use std::time::Duration;
use vshmem_base::document::Document;
use vshmem_base::{interrupt, Result};
use vshmem_hypervisor::launcher::grants::GrantResult;
use vshmem_hypervisor::launcher::target::Target;
use vshmem_inspect::HostPool;

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem pool create work --size 256M
  vshmem grant work vm0 vm1
  vshmem run -e VSHMEM_POOL=work -- ./a.out
  vshmem grant work vm1 --as mine              under another name in the machine
  vshmem revoke work vm1

The machines run on meanwhile. It is not an error if a machine has the pool already, so an interrupted command can be
repeated. A machine without the pool can neither name nor count what is in it.")]
pub struct Grant {
    #[command(flatten)]
    cluster: ClusterArg,
    /// Its name in the machines, if it differs
    #[arg(long = "as", value_name = "NAME")]
    name: Option<String>,
    /// Back all of the pool with memory now and for good: machines can't be killed for want of it
    #[arg(long)]
    reserve: bool,
    /// Time limit for each machine, in seconds
    #[arg(long, default_value = "10", value_parser = seconds, value_name = "SECONDS")]
    timeout: Duration,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The pool of this host: a name, or a path with a slash
    #[arg(add = values::pools())]
    pool: String,
    /// The machines: of the cluster, or attached ones
    #[arg(required = true, value_name = "VM", add = values::targets())]
    machines: Vec<String>,
}

#[derive(Args)]
#[command(after_help = "\
Examples:
  vshmem revoke work vm0 vm1
  vshmem revoke default vm1                    the cluster's own pool
  vshmem revoke work vm0 --force               turn it off if it does not release the pool

After the command has succeeded, no process of the machine can reach the pool's memory, and what they held in it is
released. Their calls fail with EIDRM.")]
pub struct Revoke {
    #[command(flatten)]
    cluster: ClusterArg,
    /// Time limit for each machine, in seconds
    #[arg(long, default_value = "10", value_parser = seconds, value_name = "SECONDS")]
    timeout: Duration,
    /// Turn off a machine that does not release the pool in time, like a power failure
    #[arg(long)]
    force: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// The pool: its name in the machines, or a name or path on this host
    #[arg(add = values::granted())]
    pool: String,
    /// The machines: of the cluster, or attached ones
    #[arg(required = true, value_name = "VM", add = values::targets())]
    machines: Vec<String>,
}

/// A pool that was granted, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct Granted<'a> {
    /// The machine.
    machine: &'a str,
    /// The pool's name there.
    pool: &'a str,
    /// The PCI address of its device there.
    address: &'a str,
    /// The machine had it already.
    before: bool,
    /// Programs there can use it; null: unknown.
    usable: Option<bool>,
    /// Time that it took.
    milliseconds: f64,
}

/// A pool that was revoked, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct Revoked<'a> {
    /// The machine.
    machine: &'a str,
    /// The pool's name there.
    pool: &'a str,
    /// The machine was turned off, because it did not release the pool.
    off: bool,
    /// Time that it took.
    milliseconds: f64,
}

fn seconds(text: &str) -> std::result::Result<Duration, String> {
    let number = text.parse::<f64>().ok();
    let good = number.filter(|seconds| (0.0..=86400.0).contains(seconds));
    let good = good.map(Duration::from_secs_f64);
    good.ok_or_else(|| "a time is a number of seconds from 0 to 86400".into())
}

/// Grants a pool to machines.
pub fn grant(grant: &Grant) -> Result<u8> {
    let pool = HostPool::find(&grant.pool)?.with_name(grant.name.as_deref())?;
    if grant.reserve {
        pool.reserve()?;
    }
    each(&grant.machines, |machine| {
        let mut target = Target::find(&grant.cluster.cluster, machine)?;
        let done = target.grant(&pool, grant.timeout)?;
        if grant.json {
            return print(&Document::line(Granted {
                machine,
                pool: &done.name,
                address: &done.address,
                before: done.before,
                usable: done.usable.is_ok().then_some(true),
                milliseconds: milliseconds(done.took),
            }));
        }
        print(&format!("{}\n", sentence(machine, &done)))?;
        if let Err(why) = &done.usable {
            tell!("vshmem: whether {machine} can use it is not known: {why}");
        }
        Ok(())
    })
}

fn sentence(machine: &str, done: &GrantResult) -> String {
    let GrantResult { name, address, .. } = done;
    let took = milliseconds(done.took);
    match (&done.usable, done.before) {
        (Ok(()), false) => format!("{machine} can use {name} ({address}), after {took:.0} ms"),
        (Ok(()), true) => format!("{machine} could use {name} already ({address})"),
        (Err(_), false) => format!("{machine} has {name} ({address}), after {took:.0} ms"),
        (Err(_), true) => format!("{machine} had {name} already ({address})"),
    }
}

fn milliseconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1e6).round() / 1e3
}

/// Revokes a pool from machines.
pub fn revoke(revoke: &Revoke) -> Result<u8> {
    each(&revoke.machines, |machine| {
        let begun = std::time::Instant::now();
        let mut target = Target::find(&revoke.cluster.cluster, machine)?;
        let (name, off) = match target.revoke(&revoke.pool, revoke.timeout) {
            Ok(name) => (name, false),
            // It does not have the pool.
            Err(error) if !revoke.force || error.exit_code() == 1 => return Err(error),
            Err(error) => {
                tell!("vshmem: {error}");
                interrupt::check()?;
                target.power_off()?;
                (revoke.pool.clone(), true)
            }
        };
        if revoke.json {
            return print(&Document::line(Revoked {
                machine,
                pool: &name,
                off,
                milliseconds: milliseconds(begun.elapsed()),
            }));
        }
        let took = milliseconds(begun.elapsed());
        print(&match off {
            true => format!("{machine} is off\n"),
            false => format!("{machine} does not have {name} any more, after {took:.0} ms\n"),
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read() {
        assert_eq!(seconds("0.5"), Ok(Duration::from_millis(500)));
        assert!(seconds("-1").is_err() && seconds("x").is_err() && seconds("NaN").is_err());
    }

    #[test]
    fn sentences_say_what_is_known() {
        let done = |usable, before| GrantResult {
            name: "work".into(),
            address: "0000:02:00.0".into(),
            before,
            usable,
            took: Duration::from_micros(23_400),
        };
        let said = sentence("vm0", &done(Ok(()), false));
        assert_eq!(said, "vm0 can use work (0000:02:00.0), after 23 ms");
        let said = sentence("vm0", &done(Err("nothing listens".into()), true));
        assert_eq!(said, "vm0 had work already (0000:02:00.0)");
    }

    #[test]
    fn the_first_failure_is_the_code() {
        let names = ["a", "b", "c"].map(String::from);
        let code = each(&names, |name| match name {
            "b" => Err(vshmem_base::Error::new("no").code(1)),
            "c" => Err(vshmem_base::Error::new("no")),
            _ => Ok(()),
        });
        assert_eq!(code.unwrap(), 1);
    }
}
