//! The command `vshmem pool`: local pools, which are files in /dev/shm, and the pools that a machine was
//! granted.

use crate::args::limit;
use crate::complete::values;
use crate::json::print_document;
use crate::output::{columns, each, print};
use crate::size;
use crate::table::Table;
use clap::Subcommand;
use schemars::JsonSchema;
use serde::Serialize;
use vshmem_base::{Error, Result};
use vshmem_cluster::host::users::check_unused;
use vshmem_inspect::limits::Limit;
use vshmem_inspect::pools::{
    create, create_on, device_at, list, remove, reserve, Form, Listed, DEFAULT_POOL,
};

#[derive(Subcommand)]
pub enum Pool {
    /// Make an empty pool
    #[command(after_help = "\
Examples:
  vshmem pool create work --size 1G
  VSHMEM_POOL=work LD_PRELOAD=libvshmem.so.1 ./a.out
  vshmem pool create large --size 8G --limit semmni=100000 --limit msgmnb=1M
  vshmem pool create /dev/dax0.0

Only the used parts of a pool take memory, unless it is reserved. A pool that VSHMEM_POOL names is made at first use if it
does not exist.

A path may be that of a device, such as a DAX device. The pool is then all of its memory, which must begin with zeros;
what else lies there is lost.

Limits: shmmax, shmall (in pages), shmmni, semmsl, semmns, semopm, semmni, msgmax, msgmnb, msgmni; shmget(2), semget(2) and
msgget(2) explain them. The number of IPC objects is also limited by the pool's size.")]
    Create {
        /// A name, or a path with a slash
        name: String,
        /// Its size [default: 1G]
        #[arg(long, short, value_parser = crate::size::parse)]
        size: Option<u64>,
        /// Its permission bits, in octal [default: 600]
        #[arg(long, value_parser = mode)]
        mode: Option<u32>,
        /// Back all of it with memory now and for good
        #[arg(long)]
        reserve: bool,
        /// Begin its file with a header from which a machine's kernel makes a DAX device, if the machine gets
        /// the file as persistent memory
        #[arg(long)]
        dax: bool,
        /// Begin each segment at a multiple of this, such as 2M, for members that map the pool so:
        /// those that have it as a DAX device of that alignment, or on hugetlbfs
        #[arg(long, default_value = "4K", value_parser = crate::size::parse)]
        align: u64,
        /// A System V limit that differs from Linux's default; may be repeated
        #[arg(long, short, value_name = "NAME=VALUE", value_parser = limit)]
        limit: Vec<Limit>,
    },
    /// List your pools
    #[command(alias = "list")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove unused pools
    #[command(
        alias = "remove",
        after_help = "\
Examples:
  vshmem pool rm work
  vshmem pool rm work --force

A pool in use by programs or machines, or by a cluster whose machines can be restarted, is not removed (exit code 1)."
    )]
    Rm {
        /// Also remove pools in use: their users keep them until they end, and nobody else finds them
        #[arg(long, short)]
        force: bool,
        /// Names, or paths with a slash
        #[arg(required = true, add = values::pools())]
        names: Vec<String>,
    },
}

fn mode(text: &str) -> std::result::Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("permission bits are three octal digits, like 600 or 660".into()),
    }
}

/// Makes, lists or removes pools.
pub fn pool(pool: Pool) -> Result<u8> {
    match pool {
        Pool::Create { name, size, mode, reserve: reserved, dax, align, limit } => {
            if let Some(device) = device_at(&name) {
                if size.is_some() || mode.is_some() || reserved || dax {
                    return Err(Error::new(format!(
                        "{name} is a device: of the options only --align and --limit are for a pool on it"
                    ))
                    .code(2));
                }
                return create_on(&device, &limit, align).map(|()| 0);
            }
            let (size, mode) = (size.unwrap_or(DEFAULT_POOL), mode.unwrap_or(0o600));
            create(&name, size, mode, &limit, Form { head: dax, align })?;
            if !size.is_power_of_two() {
                tell!("vshmem: the pool is made, but machines can't be granted it: its size is not a power of two.");
            }
            if mode & 0o077 != 0 && !name.contains('/') {
                tell!(
                    "vshmem: other users can't reach this pool: its directory is yours alone (mode 0700). For \
                     a group, make it by path in a directory of the group's (docs/users.md)."
                );
            }
            if reserved {
                reserve(&name, "Free some, or make a smaller pool with --size.").inspect_err(|_| {
                    let _ = remove(&name);
                })?;
            }
            Ok(0)
        }
        Pool::Ls { json } => show(&list()?, json).map(|()| 0),
        Pool::Rm { names, force } => each(&names, |name| {
            if !force {
                check_unused(name)?;
            }
            remove(name)
        }),
    }
}

/// Pools, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct All<'a> {
    /// The pools.
    pools: &'a [Listed],
}

fn show(pools: &[Listed], json: bool) -> Result<()> {
    if json {
        return print_document(All { pools });
    }
    if pools.is_empty() {
        tell!(
            "You have no pools with a name. Make one with: vshmem pool create NAME. Those that are given by path are not \
             listed."
        );
        return Ok(());
    }
    let mut table = Table::new("NAME  SIZE  USED  MODE  ACCESS  PATH");
    for Listed { name, path, size, used, mode, access, unusable, .. } in pools {
        let mode = format!("{mode:03o}");
        let access = if unusable.is_some() { "unusable".into() } else { access.to_string() };
        table.row(&[name, &size::show(*size), &size::show(*used), &mode, &access, path]);
    }
    let width = columns().unwrap_or(usize::MAX);
    print(&table.within(width, &["PATH", "MODE"]).layout())?;
    for Listed { name, unusable, .. } in pools {
        if let Some(why) = unusable {
            tell!("vshmem: {name}: {why}. If nobody needs what is in it: vshmem pool rm {name}");
        }
    }
    Ok(())
}
