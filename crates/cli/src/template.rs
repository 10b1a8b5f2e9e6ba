//! The command `vshmem template`: templates, from which machines thaw instead of booting.

use crate::age::{age, show_age};
use crate::changes::progress_printer;
use crate::complete::values;
use crate::json::print_document;
use crate::output::{each, print};
use crate::size;
use crate::table::Table;
use crate::up::{self, Up};
use clap::Subcommand;
use schemars::JsonSchema;
use serde::Serialize;
use vshmem_base::{error, interrupt, Result};
use vshmem_cluster::host::templates;
use vshmem_hypervisor::template::store::{Listed, Store};
use vshmem_hypervisor::template::templates::SHORT;

#[derive(Subcommand)]
pub enum Template {
    /// Make a template ahead of the machines that thaw from it
    #[command(after_help = "\
Examples:
  vshmem template make
  vshmem template make --cpus 4 --memory 8G
  vshmem template make cluster.toml

The options are those of vshmem up. Without this command, the first vshmem up makes the template of its machines, and
thaws them from it; later ones find it. See docs/guide-start-fast.md.")]
    Make(Box<Up>),
    /// List templates, the last used first
    #[command(after_help = "\
Examples:
  vshmem template ls
  vshmem template ls --json | jq -r '.templates[].id'")]
    Ls {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove templates; machines that have thawed from them go on
    #[command(after_help = "\
Examples:
  vshmem template rm 2c13e21d
  vshmem template rm --all")]
    Rm {
        /// Names, or how they begin
        #[arg(value_name = "TEMPLATE", add = values::templates(), required_unless_present = "all")]
        names: Vec<String>,
        /// All of them
        #[arg(long, conflicts_with = "names")]
        all: bool,
    },
}

/// The templates of a user, for JSON.
#[derive(Serialize, JsonSchema)]
pub struct All {
    /// The templates, the last used first.
    templates: Vec<Row>,
}

/// A template.
#[derive(Serialize, JsonSchema)]
struct Row {
    /// Its name.
    id: String,
    /// Virtual cores of its machines; null: its description can't be read.
    cpus: Option<u32>,
    /// Memory of its machines, in bytes.
    memory: Option<u64>,
    /// How its machines' instructions are executed.
    accel: Option<String>,
    /// The version of its kernel.
    kernel: Option<String>,
    /// Bytes on disk.
    bytes: u64,
    /// The time at which it was made, in seconds since 1970.
    made: Option<u64>,
    /// The time at which it was used last, in seconds since 1970.
    used: u64,
    /// Whether it is of this boot of the host. Others are not used, and go when the next one is made.
    current: bool,
    /// The reason why it could not be made; null: it was made.
    failed: Option<String>,
}

/// Does what is asked for with templates.
pub fn template(what: &Template) -> Result<u8> {
    match what {
        Template::Make(up) => make(up),
        Template::Ls { json } => list(*json),
        Template::Rm { names, all } => remove(names, *all),
    }
}

fn make(up: &Up) -> Result<u8> {
    interrupt::watch();
    let (launcher, options) = up::options(up)?;
    let made = templates::make(launcher, &options, &mut progress_printer("template make", up.quiet))?;
    let names: String = made.iter().map(|id| format!("{}\n", &id[..SHORT])).collect();
    print(&names).map(|()| 0)
}

fn list(json: bool) -> Result<u8> {
    let rows: Vec<Row> = Store::open()?.list()?.into_iter().map(row).collect();
    if json {
        print_document(All { templates: rows })?;
    } else if rows.is_empty() {
        tell!("You have no templates. The first vshmem up makes one, and vshmem template make.");
    } else {
        print(&table(&rows))?;
    }
    Ok(0)
}

fn row(listed: Listed) -> Row {
    let current = listed.is_current();
    let Listed { id, kept, bytes, used } = listed;
    let said = kept.as_ref();
    Row {
        id,
        cpus: said.map(|kept| kept.cpus),
        memory: said.map(|kept| kept.memory),
        accel: said.map(|kept| kept.accel.clone()),
        kernel: said.map(|kept| kept.kernel.clone()),
        bytes,
        made: said.map(|kept| kept.made),
        used,
        current,
        failed: kept.and_then(|kept| kept.failed),
    }
}

fn table(rows: &[Row]) -> String {
    let mut table = Table::new("TEMPLATE  CPUS  MEMORY  BY  KERNEL  SIZE  USED  STATE");
    for row in rows {
        let state = match (&row.failed, row.current) {
            (Some(why), _) => format!("failed: {why}"),
            (None, true) => "usable".into(),
            (None, false) => "of an earlier boot".into(),
        };
        table.row(&[
            &&row.id[..SHORT],
            &row.cpus.map_or("-".into(), |cpus| cpus.to_string()),
            &row.memory.map_or("-".into(), size::show),
            &row.accel.as_deref().unwrap_or("-"),
            &row.kernel.as_deref().unwrap_or("-"),
            &size::show(row.bytes >> 20 << 20),
            &show_age(age(row.used)),
            &state,
        ]);
    }
    table.layout()
}

fn remove(names: &[String], all: bool) -> Result<u8> {
    interrupt::watch();
    let store = Store::open()?;
    let listed = store.list()?;
    let ids = match all {
        true => listed.iter().map(|it| it.id.clone()).collect(),
        false => names.iter().map(|name| find(&listed, name)).collect::<Result<Vec<String>>>()?,
    };
    each(&ids, |id| store.remove(id, &store.hold(id)?))
}

/// The template whose name begins so.
fn find(listed: &[Listed], name: &str) -> Result<String> {
    let mut found = listed.iter().filter(|it| it.id.starts_with(name));
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.id.clone()),
        (None, _) => Err(error!("there is no template {name}").code(1).hint("See vshmem template ls.")),
        (Some(_), Some(_)) => Err(error!("several templates begin with {name}").code(2)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listed(id: &str) -> Listed {
        Listed { id: id.into(), kept: None, bytes: 118_000_000, used: 0 }
    }

    #[test]
    fn a_name_may_be_short() {
        let all = [listed("2c13e21d00"), listed("2c9f000000")];
        assert_eq!(find(&all, "2c1").unwrap(), "2c13e21d00");
        assert!(find(&all, "2c").unwrap_err().to_string().contains("several"));
        assert_eq!(find(&all, "3").unwrap_err().exit_code(), 1);
    }

    #[test]
    fn a_list_fits_a_terminal() {
        let row = Row {
            cpus: Some(128),
            memory: Some(512 << 20),
            accel: Some("fast".into()),
            kernel: Some("6.1.0-57-cloud-amd64".into()),
            current: true,
            ..row(listed(&"2c13e21d".repeat(4)))
        };
        let text = table(&[row]);
        assert!(text.lines().all(|line| line.len() <= 80), "{text}");
        assert!(text.contains("2c13e21d  128   512M    fast  6.1.0-57-cloud-amd64  112M"), "{text}");
    }
}
