//! Tests of the store.

use super::*;
use rustix::io::pwrite;

const SIZE: u64 = 1 << 20;

/// Words of what is said of a template, and what damages it.
type Damage<'a> = (&'a str, &'a dyn Fn(&Path));

struct Scene(PathBuf, Store);

impl Scene {
    fn new(name: &str) -> Scene {
        let path = std::env::temp_dir().join(format!("vshmem-{name}-{}", std::process::id()));
        Scene(path.clone(), Store(path))
    }

    fn key(&self, name: &str) -> Key {
        let mut key = Key::of_host();
        key.add("test", name);
        key
    }

    fn put(&self, key: &Key) {
        let memory = memory::create(SIZE).unwrap();
        pwrite(&memory, &[7; 5000], 8192).unwrap();
        memory::seal(&memory).unwrap();
        let made = Ok(Template { memory: Some(memory), state: b"state".to_vec() });
        self.1.put(key, kind(), &made, &self.1.hold(&key.id()).unwrap()).unwrap();
    }

    fn get(&self, key: &Key) -> Result<Option<Template>> {
        match self.1.get(key, &self.1.hold(&key.id()).unwrap())? {
            Found::Template(template) => Ok(Some(template)),
            Found::Nothing => Ok(None),
            Found::Failure(why) => panic!("{why}"),
        }
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn kind() -> Kind {
    Kind { cpus: 1, memory: SIZE, accel: "fast".into(), kernel: "6.1".into() }
}

#[test]
fn a_template_is_kept() {
    let scene = Scene::new("template-kept");
    let key = scene.key("a");
    assert!(scene.get(&key).unwrap().is_none());
    scene.put(&key);
    let template = scene.get(&key).unwrap().unwrap();
    assert_eq!(template.state, b"state");
    let mut bytes = [0; 5000];
    let memory = template.memory.unwrap();
    rustix::io::pread(&memory, &mut bytes[..], 8192).unwrap();
    assert!(bytes == [7; 5000] && pwrite(&memory, &[1], 0).is_err());
    let listed = scene.1.list().unwrap();
    assert!(listed[0].id == key.id() && listed[0].is_current());
    assert!((8192..32768).contains(&listed[0].bytes), "{listed:?}");
    assert!(scene.get(&scene.key("b")).unwrap().is_none());
}

#[test]
fn a_state_may_have_the_memory_in_it() {
    let scene = Scene::new("template-whole");
    let key = scene.key("a");
    let held = scene.1.hold(&key.id()).unwrap();
    let state = vec![7; 3 << 20];
    scene.1.put(&key, kind(), &Ok(Template { memory: None, state: state.clone() }), &held).unwrap();
    let Ok(Found::Template(template)) = scene.1.get(&key, &held) else { panic!("it is there") };
    assert!(template.memory.is_none() && template.state == state);
}

#[test]
fn what_is_damaged_or_forged_is_not_used() {
    let scene = Scene::new("template-damaged");
    let key = scene.key("a");
    let place = scene.0.join(key.id());
    let damages: [Damage; 8] = [
        ("damaged", &|place| fs::write(place.join(STATE), "State").unwrap()),
        ("damaged", &|place| {
            let file = File::options().write(true).open(place.join(MEMORY)).unwrap();
            pwrite(&file, &[8], 8200).unwrap();
        }),
        ("damaged", &|place| {
            let file = File::options().write(true).open(place.join(MEMORY)).unwrap();
            file.set_len(4096).unwrap();
        }),
        ("could not open", &|place| fs::remove_file(place.join(MEMORY)).unwrap()),
        ("invalid", &|place| fs::write(place.join(DESCRIPTION), "{").unwrap()),
        ("for other machines", &|place| {
            let text = fs::read_to_string(place.join(DESCRIPTION)).unwrap();
            fs::write(place.join(DESCRIPTION), text.replace("test: a", "test: b")).unwrap();
        }),
        ("only you can write", &|place| {
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o666);
            fs::set_permissions(place.join(STATE), mode).unwrap();
        }),
        ("could not open", &|place| {
            fs::rename(place.join(STATE), place.join("other")).unwrap();
            std::os::unix::fs::symlink("other", place.join(STATE)).unwrap();
        }),
    ];
    for (why, damage) in damages {
        scene.put(&key);
        assert!(scene.get(&key).unwrap().is_some());
        damage(&place);
        let error = scene.get(&key).err().map(|error| error.to_string()).unwrap_or_default();
        assert!(error.contains(why), "{error}");
    }
}

#[test]
fn a_failure_is_not_repeated() {
    let scene = Scene::new("template-failed");
    let key = scene.key("a");
    let held = scene.1.hold(&key.id()).unwrap();
    scene.1.put(&key, kind(), &Err("no such thing".into()), &held).unwrap();
    assert!(matches!(scene.1.get(&key, &held), Ok(Found::Failure(why)) if why == "no such thing"));
    let description = scene.0.join(key.id()).join(DESCRIPTION);
    let mut kept = parse(&fs::read(&description).unwrap()).unwrap();
    kept.made -= RETRY + 1;
    fs::write(&description, serde_json::to_vec(&kept).unwrap()).unwrap();
    assert!(matches!(scene.1.get(&key, &held), Ok(Found::Nothing)));
}

#[test]
fn the_oldest_go_first() {
    let scene = Scene::new("template-oldest");
    let keys = ["a", "b", "c"].map(|name| scene.key(name));
    for (age, key) in [30, 20, 10].into_iter().zip(&keys) {
        scene.put(key);
        let file = File::options().append(true).open(scene.0.join(key.id()).join(DESCRIPTION)).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    let sizes: Vec<u64> = scene.1.list().unwrap().iter().map(|listed| listed.bytes).collect();
    scene.1.bound(sizes[0] + sizes[1], None);
    let left: Vec<String> = scene.1.list().unwrap().into_iter().map(|listed| listed.id).collect();
    assert_eq!(left, [keys[2].id(), keys[1].id()]);
    scene.1.bound(1, Some(&keys[1].id()));
    let left = scene.1.list().unwrap();
    assert!(left.len() == 1 && left[0].id == keys[1].id());
}

#[test]
fn what_killed_commands_and_earlier_boots_have_left_goes() {
    let scene = Scene::new("template-tidy");
    let old = Key::of_text("vshmem: 0\nboot: another\n");
    scene.put(&old);
    let mine = scene.0.join(format!("{}.{}.new", old.id(), std::process::id()));
    let left = scene.0.join(format!("{}.{}.new", old.id(), i32::MAX));
    [&mine, &left].iter().for_each(|path| fs::create_dir(path).unwrap());
    scene.1.tidy();
    assert!(mine.exists() && !left.exists() && scene.1.list().unwrap().is_empty());
}
