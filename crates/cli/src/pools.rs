//! The command `vshmem pool`: local pools, which are files in /dev/shm, and the pools that a machine was
//! granted.

use crate::json::print_document;
use crate::output::{each, print};
use crate::table::Table;
use crate::{args, size};
use schemars::JsonSchema;
use serde::Serialize;
use vshmem_base::{Error, Result};
use vshmem_cluster::host::users::check_unused;
use vshmem_inspect::pools::{
    create, create_on, device_at, list, remove, reserve, Form, Listed, DEFAULT_POOL,
};

/// Makes, lists or removes pools.
pub fn pool(pool: args::Pool) -> Result<u8> {
    match pool {
        args::Pool::Create { name, size, mode, reserve: reserved, dax, align, limit } => {
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
                eprintln!("vshmem: machines can't be granted this pool: its size is not a power of two.");
            }
            if reserved {
                reserve(&name, "Free some, or make a smaller pool with --size.").inspect_err(|_| {
                    let _ = remove(&name);
                })?;
            }
            Ok(0)
        }
        args::Pool::Ls { json } => show(&list()?, json).map(|()| 0),
        args::Pool::Rm { names, force } => each(&names, |name| {
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
        eprintln!("vshmem: there are no pools with a name. Pools that are given by path are not listed.");
    }
    let mut table = Table::new("NAME  SIZE  USED  MODE  ACCESS  PATH");
    for Listed { name, path, size, used, mode, access, .. } in pools {
        let mode = format!("{mode:03o}");
        table.row(&[name, &size::show(*size), &size::show(*used), &mode, access, path]);
    }
    print(&table.layout())
}
