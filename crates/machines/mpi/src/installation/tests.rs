use super::*;
use std::fs;
use std::os::unix::fs::PermissionsExt;

/// A directory in which an MPI seems to be installed.
struct Root(PathBuf);

impl Root {
    fn new(name: &str) -> Root {
        let root = std::env::temp_dir().join(format!("vshmem-mpi-{name}-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        Root(root)
    }

    fn file(&self, path: &str, bytes: &[u8]) -> PathBuf {
        let file = self.0.join(path);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(&file, bytes).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o755)).unwrap();
        file
    }
}

impl Drop for Root {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn mpich() -> &'static dyn Implementation {
    by_option("mpich").unwrap()
}

fn open_mpi() -> &'static dyn Implementation {
    by_option("openmpi").unwrap()
}

fn host() -> Files {
    Files::host("/")
}

#[test]
fn launchers_belong_to_libraries() {
    let root = Root::new("launchers");
    let library = root.file("lib/x86_64-linux-gnu/libmpich.so.12", b"");
    let missing = launchers::beside(&host(), mpich(), &library);
    // Those of the system are found above any directory, if it has them.
    assert!(missing.is_err() || !missing.unwrap().file.starts_with(&root.0));
    root.file("bin/mpiexec", b"\0HYDRA build details:\0");
    root.file("bin/hydra_pmi_proxy", b"");
    let launcher = launchers::beside(&host(), mpich(), &library).unwrap();
    assert_eq!(launcher.file, root.0.join("bin/mpiexec"));
    assert_eq!(launcher.daemon, root.0.join("bin/hydra_pmi_proxy"));
    assert!(launchers::libraries(mpich(), &launcher).contains(&root.0.join("lib/libmpi.so.12")));
    // Both are installed in one directory, and mpiexec is the other's.
    root.file("bin/orted", b"");
    let other = launchers::beside(&host(), open_mpi(), &library);
    assert!(other.is_err() || !other.unwrap().file.starts_with(&root.0));
    let orterun = root.file("bin/orterun", b"");
    assert_eq!(launchers::read(&host(), &orterun).unwrap().0, open_mpi());
    let why = launchers::read(&host(), "/bin/sh".as_ref()).unwrap_err().to_string();
    assert_eq!(why, "--mpi /bin/sh: it is no mpiexec of MPICH or Open MPI");
    let why = launchers::read(&host(), "/no/such".as_ref()).unwrap_err().to_string();
    assert_eq!(why, "--mpi /no/such: there is no such program");
}

#[test]
fn libraries_are_told_apart_by_what_they_hold() {
    let root = Root::new("libraries");
    let of = |name: &str, bytes: &[u8]| {
        let file = root.file(name, bytes);
        library_in(&host(), vec!["/lib/libc.so.6".into(), file])
            .map(|found| found.map(|it| it.implementation))
    };
    assert_eq!(of("libmpi.so.12", b"\0MPICH Version:  %s\0").unwrap(), Some(mpich()));
    assert_eq!(of("libmpi.so.40", b"\0ompi_version_string\0").unwrap(), Some(open_mpi()));
    assert_eq!(of("libx.so.1", b"").unwrap(), None);
    let why = of("libmpi.so.12", b"something").unwrap_err().to_string();
    let want =
        "libmpi.so.12 is neither MPICH's library nor Open MPI's\n  Build the program with MPICH or Open MPI.";
    assert!(why.ends_with(want), "{why}");
}

fn mpi(version: Option<Version>, ucx: Option<Version>) -> Mpi {
    let launcher = Launcher { file: "/m".into(), daemon: "/d".into() };
    let library = |name: &str, version| Library { file: name.into(), version };
    Mpi {
        implementation: mpich(),
        library: library("/l", version),
        ucx: library("/u", ucx),
        launcher,
        shmem: false,
    }
}

#[test]
fn versions_that_were_not_tested_are_named() {
    let (good, good_ucx) = (Some(Version(4, 0, 2)), Some(Version(1, 20, 1)));
    assert_eq!(mpi(good, good_ucx).untested(), None);
    let why = mpi(Some(Version(3, 4, 1)), good_ucx).untested().unwrap();
    assert_eq!(why, "/l is MPICH 3.4.1, and Vshmem was tested with 4.0.2 to 5.0");
    let why = mpi(good, Some(Version(1, 23, 0))).untested().unwrap();
    assert_eq!(why, "/u is UCX 1.23.0, and Vshmem was tested with 1.13.1 to 1.22");
    assert_eq!(mpi(good, None).untested().unwrap(), "the version of UCX can't be told from /u");
}

#[test]
fn programs_without_mpi_are_refused() {
    let why = Mpi::find(&host(), "/bin/sh".as_ref(), &Choice::Program).unwrap_err();
    assert!(why.to_string().starts_with("/bin/sh loads no MPI library"), "{why}");
}

#[test]
fn choices_are_read() {
    assert_eq!(Choice::parse("mpich".as_ref()), Choice::Implementation(mpich()));
    assert_eq!(Choice::parse("openmpi".as_ref()), Choice::Implementation(open_mpi()));
    assert_eq!(Choice::parse("/x/bin/mpiexec".as_ref()), Choice::Launcher("/x/bin/mpiexec".into()));
}
