//! A placement as an SVG image.

use super::{cache_groups, uses, Use};
use crate::topology::Topology;
use svg::node::element::{Group, Rectangle, Text, Title};
use svg::Document;
use vshmem_placement::cpuset::CpuSet;
use vshmem_placement::plan::Plan;

/// The side of a core's square, and the gap between two, in pixels.
const SIDE: usize = 56;
const GAP: usize = 6;
/// Cores in a row.
const ROW: usize = 16;
/// The height of a line of text.
const LINE: usize = 20;
const MARGIN: usize = 16;

/// A square for each core, with the colour of its machine; hovering tells why.
pub fn svg(topology: &Topology, plan: &Plan, taken: &CpuSet) -> String {
    let uses = uses(topology, plan, taken);
    let mut drawing = Group::new().set("font-family", "sans-serif").set("font-size", 13);
    let mut y = MARGIN + LINE;
    let mut width = 0;
    drawing = drawing.add(line(MARGIN, y, &topology.source));
    y += LINE / 2;
    let mut seen = None;
    for group in cache_groups(topology) {
        if seen != Some((group.package, group.node)) {
            seen = Some((group.package, group.node));
            y += LINE;
            drawing = drawing.add(line(MARGIN, y, &group.heading(topology)));
            y += GAP;
        }
        for cores in group.cores.chunks(ROW) {
            for (column, core) in cores.iter().enumerate() {
                let x = MARGIN + column * (SIDE + GAP);
                width = width.max(x + SIDE);
                drawing = drawing.add(square(topology, plan, *core, uses[*core], x, y));
            }
            y += SIDE + GAP;
        }
        // A gap where another cache begins.
        y += GAP;
    }
    for machine in &plan.machines {
        for text in machine.why.iter().chain(&machine.fallbacks) {
            let text = format!("{}: {text}", machine.name);
            y += LINE;
            width = width.max(MARGIN + text.chars().count() * 7);
            drawing = drawing.add(line(MARGIN, y, &text));
        }
    }
    let (width, height) = (width + MARGIN, y + MARGIN);
    let background = Rectangle::new().set("width", "100%").set("height", "100%").set("fill", "white");
    Document::new()
        .set("viewBox", (0, 0, width, height))
        .set("width", width)
        .set("height", height)
        .add(background)
        .add(drawing)
        .to_string()
}

fn line(x: usize, y: usize, text: &str) -> Text {
    Text::new(text).set("x", x).set("y", y)
}

fn square(topology: &Topology, plan: &Plan, core: usize, used: Use, x: usize, y: usize) -> Group {
    let (fill, label, title) = match used {
        Use::Machine(index) => {
            let machine = &plan.machines[index];
            (
                colour(index),
                machine.name.chars().take(7).collect(),
                format!("{}: {}", machine.name, machine.why.join("; ")),
            )
        }
        Use::Shared => {
            ("#dddddd".into(), "shared".to_owned(), "vCPUs that may run on other cores, too".to_owned())
        }
        Use::Emulator => ("#bbbbbb".into(), "host".to_owned(), "emulator threads".to_owned()),
        Use::Others => ("#888888".into(), "other".to_owned(), "machines of other clusters".to_owned()),
        Use::Free => ("white".into(), String::new(), "free".to_owned()),
    };
    let pus = topology.pus(&[core]).to_string();
    Group::new()
        .add(Title::new(title))
        .add(
            Rectangle::new()
                .set("x", x)
                .set("y", y)
                .set("width", SIDE)
                .set("height", SIDE)
                .set("rx", 4)
                .set("fill", fill)
                .set("stroke", "#666"),
        )
        .add(line(x + 4, y + 16, &label))
        .add(line(x + 4, y + SIDE - 6, &pus).set("font-size", 11).set("fill", "#555"))
}

/// A light colour for each machine; those of neighbours differ.
fn colour(index: usize) -> String {
    // The golden angle leaves no two of a few hues close to each other.
    format!("hsl({}, 65%, 78%)", index * 137 % 360)
}
