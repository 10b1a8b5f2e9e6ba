//! The command `vshmem xen`: pools between Xen domains.

use crate::complete::values;
use crate::{args, size};
use clap::{Args, Subcommand};
use std::io::Write;
use std::time::Duration;
use vshmem_agent::xen::{default_limits, join, own, withdraw, OwnOptions, Until, Withdrawal};
use vshmem_base::{error, Result};
use vshmem_inspect::limits::Limit;

#[derive(Subcommand)]
#[command(after_help = "\
Examples:
  vshmem xen own work --size 16M --to vm0,vm1     in dom0: a pool for two domains, which may be started later
  vshmem xen join                                 in vm0 and vm1: attach what dom0 gives; programs then find the pool
  VSHMEM_POOL=work LD_PRELOAD=... ./a.out         in any of the three

Both go on until SIGTERM or SIGINT ends them; as root, with the driver vshmem_xen.ko. If one is killed, start it again: pools stay.
  vshmem xen withdraw work                        or remove what a killed `own` has left
")]
pub enum Xen {
    /// Make a pool of this domain's memory, give it to other domains, and take it back when they are gone
    Own(OwnArgs),
    /// Attach the pools that a domain gives to this one, and let them go when it takes them back
    Join(JoinArgs),
    /// Take away a pool whose `own` was killed
    Withdraw {
        /// The pool's name
        #[arg(add = values::pools())]
        pool: String,
    },
}

#[derive(Args)]
pub struct OwnArgs {
    /// The pool's name
    pool: String,
    /// Its size, 256M at the most
    #[arg(long, value_name = "SIZE", default_value = "16M", value_parser = size::parse)]
    size: u64,
    /// Domains that are to have it: ids, or in dom0 names
    #[arg(long, value_name = "DOMAIN", value_delimiter = ',', required = true)]
    to: Vec<String>,
    /// A System V limit of the pool, as for `vshmem pool create`; may be given several times
    #[arg(long, short, value_name = "NAME=VALUE", value_parser = args::limit)]
    limit: Vec<Limit>,
}

#[derive(Args)]
pub struct JoinArgs {
    /// The domain that owns the pools
    #[arg(long, value_name = "ID", default_value_t = 0)]
    owner: u16,
    /// As large as all of its pools together may be
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    at_most: u64,
    /// End as soon as there is a pool, which stays; fail if there is none within so many seconds
    #[arg(long, value_name = "SECONDS")]
    once: Option<u64>,
}

/// Serves, joins or withdraws pools.
pub fn xen(xen: Xen) -> Result<u8> {
    // Line by line, since it may go to a log. A full disk is no reason to end.
    let report = &mut |sentence: &str| drop(writeln!(std::io::stdout(), "{sentence}"));
    let result = match xen {
        Xen::Own(args) => {
            let options = OwnOptions {
                pool: args.pool,
                size: args.size,
                to: args.to,
                limits: Limit::all(&args.limit, default_limits()),
            };
            let check = |limits| args.limit.iter().try_for_each(|limit| limit.check(limits));
            own(options, &check, report)
        }
        Xen::Join(args) => {
            let until = match args.once {
                Some(seconds) => Until::Any(Duration::from_secs(seconds)),
                None => Until::Ended,
            };
            join(args.owner, args.at_most, until, report)
        }
        Xen::Withdraw { pool } => return withdraw_left(&pool),
    };
    result.map(|()| 0)
}

/// Withdraws a pool that no process serves.
fn withdraw_left(pool: &str) -> Result<u8> {
    let why = match withdraw(pool)? {
        Withdrawal::Removed => return Ok(0),
        Withdrawal::Served => "is served by a process, which withdraws it when it is ended: `vshmem xen own`",
        Withdrawal::NoPool => "is not there: `vshmem pool ls` shows those that are",
    };
    Err(error!("the pool {pool} {why}"))
}
