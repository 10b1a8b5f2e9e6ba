//! Tries a tree by hand: `root write FILE PATH[=AT][:public]...` writes the whole image to a file, with all
//! contents; `root serve SOCKET PATH[=AT][:public]...` serves it. Both say what was walked, and how fast.

use std::fs::File;
use std::io::Write;
use std::os::unix::net::UnixListener;
use std::sync::Arc;
use std::time::Instant;
use vshmem_base::error::{error, Explain, Result};
use vshmem_root::serve::{Contents, Limits};
use vshmem_root::{walk, Image, Part, Server, View};

fn part(text: &str) -> Part {
    let (text, view) = match text.strip_suffix(":public") {
        Some(text) => (text, View::Public),
        None => (text, View::Readable),
    };
    let (source, at) = text.split_once('=').unwrap_or((text, text));
    Part::Host { source: source.into(), at: at.into(), view }
}

fn main() -> Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [what, target, parts @ ..] = &words[..] else {
        return Err(error!("usage: root write|serve TARGET PATH[=AT][:public]...").code(2));
    };
    let parts: Vec<Part> = parts.iter().map(|text| part(text)).collect();
    let began = Instant::now();
    let walked = walk(&parts, None)?;
    eprintln!(
        "{} inodes in {:.2} s, {:.1} MB\n{}",
        walked.tree.len(),
        began.elapsed().as_secs_f64(),
        walked.tree.memory() as f64 / 1e6,
        walked.left_out
    );
    let began = Instant::now();
    let path = format!("{target}.metadata");
    let metadata = File::options().read(true).write(true).create(true).truncate(true).open(&path);
    let image = Image::make(&walked.tree, metadata.explain(|| format!("making {path}"))?)?;
    eprintln!(
        "image {} in {:.2} s: {:.1} MB of metadata, {:.1} MB in all",
        image.id(),
        began.elapsed().as_secs_f64(),
        image.metadata_length() as f64 / 1e6,
        image.length() as f64 / 1e6
    );
    let contents = Contents::new(walked.tree, image, 512, Box::new(|line| eprintln!("{line}")));
    if what == "write" {
        let mut out = File::create(target).explain(|| format!("making {target}"))?;
        let mut at = 0;
        let mut bytes = vec![0; 1 << 20];
        while at < contents.image().length() {
            let length = (contents.image().length() - at).min(bytes.len() as u64) as usize;
            contents.read(&mut bytes[..length], at).explain(|| format!("reading at {at}"))?;
            out.write_all(&bytes[..length]).explain(|| "writing".into())?;
            at += length as u64;
        }
        return Ok(());
    }
    let _ = std::fs::remove_file(target);
    let listener = UnixListener::bind(target).explain(|| format!("listening at {target}"))?;
    Server::new(Arc::new(contents), Limits::default()).run(&listener, None).explain(|| "serving".into())
}
