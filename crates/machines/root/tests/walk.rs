//! What a walk finds, what it leaves out, and what it need not look at again.

mod common;

use common::{host, metadata, mode, number, paths, Scratch};
use std::fs;
use std::os::unix::fs::{chown, symlink, MetadataExt};
use std::os::unix::process::CommandExt;
use std::process::Command;
use vshmem_root::walk::Why;
use vshmem_root::{walk, Part, Tree, View};

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// Runs a test of this program again, as a user who can't read everything.
fn as_nobody(test: &str) {
    let theirs = Scratch::new("nobody");
    chown(&theirs.0, Some(65534), Some(65534)).unwrap();
    let mut again = Command::new("/proc/self/exe");
    again.args(["--exact", test]).env("TMPDIR", &theirs.0).uid(65534).gid(65534);
    let out = again.output().unwrap();
    let said = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && said.contains("1 passed"), "{said}");
}

#[test]
fn parts_are_put_together() {
    let it = Scratch::new("parts");
    for name in ["usr/bin/tool", "usr/local/hidden", "usr/share/doc", "local/own", "work/job", "secret/key"] {
        it.write(name, b"text");
    }
    symlink("usr/bin", it.tree("bin")).unwrap();
    let parts = [
        host(&it.tree("usr"), "/usr", View::Readable),
        host(&it.tree("local"), "/usr/local", View::Readable),
        host(&it.tree("bin"), "/bin", View::Readable),
        host(&it.tree("work"), "/home/me/work", View::Readable),
        host(&it.tree("secret/key"), "/one/file", View::Readable),
        host(&it.tree("nothing"), "/missing", View::Readable),
        Part::Directory { at: "/tmp".into(), mode: 0o1777, uid: 0, gid: 0 },
        Part::Directory { at: "/usr/share".into(), mode: 0o700, uid: 7, gid: 7 },
        Part::Hidden("/usr/bin".into()),
        Part::Hidden("/home/me/work/job".into()),
        // In what is not shown.
        host(&it.tree("secret"), "/usr/bin/in/it", View::Readable),
    ];
    let tree = walk(&parts, None).unwrap().tree;
    let expected = [
        "/bin",
        "/home",
        "/home/me",
        "/home/me/work",
        "/home/me/work/job",
        "/one",
        "/one/file",
        "/tmp",
        "/usr",
        "/usr/bin",
        "/usr/bin/in",
        "/usr/bin/in/it",
        "/usr/bin/in/it/key",
        "/usr/local",
        "/usr/local/own",
        "/usr/share",
        "/usr/share/doc",
    ];
    assert_eq!(paths(&tree), expected);
    let node = |path: &str| *tree.node(number(&tree, path).unwrap());
    assert_eq!(tree.target(&node("/bin")), b"usr/bin");
    assert_eq!(node("/tmp").mode, 0o041777);
    assert_eq!(node("/usr/share").uid, fs::metadata(it.tree("usr/share")).unwrap().uid(), "the host has one");
    assert_eq!(node("/home/me/work/job").stamp.size, 0, "it is hidden");
    assert_eq!((node("/usr").links, node("/usr/bin").links), (5, 3));
    let (part, path) = tree.path_in_part(number(&tree, "/usr/local/own").unwrap());
    assert_eq!((part, path.to_str()), (1, Some("own")));
    let (part, path) = tree.path_in_part(number(&tree, "/one/file").unwrap());
    assert_eq!((part, path.to_str()), (4, Some("")));
}

#[test]
fn names_of_one_file_are_one_inode() {
    let it = Scratch::new("links");
    it.write("a/one", b"text");
    fs::create_dir(it.tree("b")).unwrap();
    fs::hard_link(it.tree("a/one"), it.tree("b/other")).unwrap();
    fs::hard_link(it.tree("a/one"), it.0.join("outside")).unwrap();
    let tree = it.walk().tree;
    assert_eq!(number(&tree, "a/one"), number(&tree, "b/other"));
    assert_eq!(tree.node(number(&tree, "a/one").unwrap()).links, 2, "a name outside is none");
}

#[test]
fn what_the_user_can_t_read_is_not_there() {
    if is_root() {
        as_nobody("what_the_user_can_t_read_is_not_there");
        return;
    }
    let it = Scratch::new("unreadable");
    for name in ["fine", "closed", "directory/in"] {
        it.write(name, b"text");
    }
    mode(&it.tree("closed"), 0o200);
    mode(&it.tree("directory"), 0o311);
    let walked = it.walk();
    mode(&it.tree("directory"), 0o755);
    assert_eq!(paths(&walked.tree), ["/fine"]);
    assert_eq!(walked.left_out.count(Why::Unreadable), 2);
    assert!(walked.left_out.to_string().contains("/closed"), "{}", walked.left_out);
}

#[test]
fn a_public_view_has_what_everybody_can_read() {
    let it = Scratch::new("public");
    for name in ["open", "own", "group", "run", "closed/in", "listed/in", "fine/in"] {
        it.write(name, b"text");
    }
    for (name, bits) in
        [("own", 0o600), ("group", 0o640), ("run", 0o4755), ("closed", 0o750), ("listed", 0o754)]
    {
        mode(&it.tree(name), bits);
    }
    Command::new("mkfifo").arg(it.tree("fifo")).status().unwrap();
    symlink("open", it.tree("link")).unwrap();
    let tree = walk(&[host(&it.0.join("tree"), "/etc", View::Public)], None).unwrap().tree;
    let expected = [
        "/etc",
        "/etc/closed",
        "/etc/fine",
        "/etc/fine/in",
        "/etc/group",
        "/etc/link",
        "/etc/listed",
        "/etc/open",
        "/etc/own",
        "/etc/run",
    ];
    assert_eq!(paths(&tree), expected);
    let node = |path: &str| *tree.node(number(&tree, path).unwrap());
    assert!(!node("/etc/own").has_contents() && !node("/etc/group").has_contents());
    assert!(node("/etc/open").has_contents() && node("/etc/run").has_contents());
    assert_eq!((node("/etc/run").mode, node("/etc/own").mode), (0o100755, 0o100644));
    assert_eq!((node("/etc/closed").mode, node("/etc/closed").links), (0o040755, 2));
}

/// The same paths, nodes and metadata.
fn assert_same(one: &Tree, other: &Tree) {
    assert_eq!(paths(one), paths(other));
    assert!(metadata(one) == metadata(other), "metadata differ");
    assert_eq!(common::image(one).id(), common::image(other).id());
}

/// Makes everything in a tree so old that its times tell all changes.
fn age(it: &Scratch) {
    let _ = it;
    std::thread::sleep(std::time::Duration::from_millis(3100));
}

#[test]
fn a_second_walk_gives_the_same_image_and_sees_every_change() {
    let it = Scratch::new("again");
    for number in 0..50 {
        it.write(&format!("d{}/f{number}", number % 5), &[b'x'; 5000][..100 * number]);
    }
    symlink("d1/f1", it.tree("link")).unwrap();
    fs::hard_link(it.tree("d1/f1"), it.tree("d2/hard")).unwrap();
    let attributed =
        Command::new("setfattr").args(["-n", "user.x", "-v", "1"]).arg(it.tree("d3/f3")).status();
    let first = it.walk();
    assert_same(&first.tree, &it.walk().tree);
    // Fresh files may yet change unseen, so nothing is taken as known.
    let fresh = walk(&[it.part()], Some(&first.tree)).unwrap();
    assert_eq!(fresh.known, 0);
    assert_same(&first.tree, &fresh.tree);
    age(&it);
    let old = it.walk();
    let again = walk(&[it.part()], Some(&old.tree)).unwrap();
    assert_eq!(again.known, old.tree.len() - 1, "all but the root");
    assert_same(&old.tree, &again.tree);
    if attributed.is_ok_and(|status| status.success()) {
        let node = again.tree.node(number(&again.tree, "d3/f3").unwrap());
        assert_eq!(again.tree.attributes(node).count(), 1);
    }
    // All kinds of changes.
    it.write("d0/new", b"new");
    fs::remove_file(it.tree("d1/f6")).unwrap();
    it.write("d2/f7", b"changed");
    mode(&it.tree("d3/f8"), 0o600);
    fs::rename(it.tree("d4/f9"), it.tree("d4/renamed")).unwrap();
    fs::remove_file(it.tree("link")).unwrap();
    symlink("elsewhere", it.tree("link")).unwrap();
    it.write("d5/in/a/new/one", b"deep");
    let changed = walk(&[it.part()], Some(&old.tree)).unwrap();
    assert!(changed.known > 30, "{} are known", changed.known);
    assert_same(&it.walk().tree, &changed.tree);
    assert!(number(&changed.tree, "d1/f6").is_none() && number(&changed.tree, "d5/in/a/new/one").is_some());
    // Other parts have other trees.
    let other = walk(&[host(&it.tree("d1"), "/", View::Readable)], Some(&old.tree)).unwrap();
    assert_eq!(other.known, 0);
}

#[test]
fn a_tree_that_was_kept_is_the_same() {
    let it = Scratch::new("kept");
    for number in 0..20 {
        it.write(&format!("d{}/f{number}", number % 5), b"text");
    }
    symlink("d1", it.tree("link")).unwrap();
    let sparse = fs::File::create(it.tree("sparse")).unwrap();
    sparse.set_len(5 << 30).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&sparse, b"data", 3 << 30).unwrap();
    let tree = it.walk().tree;
    let mut bytes = Vec::new();
    tree.save(&mut bytes).unwrap();
    let loaded = Tree::load(&mut &bytes[..]).unwrap();
    assert_eq!(loaded, tree);
    assert_same(&loaded, &tree);
    for length in [0, 10, 16, 100, bytes.len() / 2, bytes.len() - 1] {
        assert!(Tree::parse(&bytes[..length]).is_err());
    }
    for at in (0..bytes.len()).step_by(97) {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x10;
        assert!(Tree::parse(&damaged).is_err(), "byte {at}");
    }
}

#[test]
fn paths_that_no_program_could_name_are_left_out() {
    let it = Scratch::new("long");
    let name = "n".repeat(250);
    // Steps by relative paths: no absolute one is long enough.
    let script = format!(
        "cd '{}' && for i in $(seq 20); do mkdir {name} && cd -P {name} || exit 1; done",
        it.tree("").display()
    );
    assert!(Command::new("sh").args(["-c", &script]).status().unwrap().success());
    let walked = it.walk();
    assert_eq!(walked.tree.len(), 1 + 16, "16 of 251 bytes are below 4,095");
    assert_eq!(walked.left_out.count(Why::PathTooLong), 1);
    Command::new("rm").arg("-rf").arg(it.tree("")).status().unwrap();
}

#[test]
fn a_million_inodes_take_bounded_memory() {
    let it = Scratch::new("memory");
    for number in 0..3000 {
        it.write(&format!("directory-{}/file-with-a-name-{number}", number % 50), b"");
    }
    let tree = it.walk().tree;
    let each = tree.memory() / tree.len();
    assert!(each < 300, "{each} bytes for each inode");
    let image = common::image(&tree);
    assert!(image.metadata_length() as usize / tree.len() < 128, "{} bytes", image.metadata_length());
}
