//! The choice of the store, for every verb: the source of the URL, and the messages about it.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::common::{Place, Running, binary, code, ended, line_with, output, stderr, stdout};

/// `fencelock` as an ordinary user; its environment has only the test's variables.
pub(crate) struct OrdinaryUser {
    place: Place,
    pub(crate) program: PathBuf,
}

impl OrdinaryUser {
    pub(crate) fn new() -> Self {
        let place = Place::new();
        open(place.directory.path());
        // Where the binary was built, an ordinary user may not look.
        let program = place.path("fencelock");
        // Another process copies the file: a file that this process wrote cannot be run until a child of another test has
        // closed its copy of the descriptor.
        assert!(Command::new("cp").arg(env!("CARGO_BIN_EXE_fencelock")).arg(&program).status().unwrap().success());
        let this = Self { place, program };
        for directory in ["home", "home/.config", "home/.config/fencelock", "here"] {
            fs::create_dir(this.place.path(directory)).unwrap();
            open(&this.place.path(directory));
        }
        this
    }

    fn command(&self) -> Command {
        self.command_of(&self.program)
    }

    /// Another program, as that user.
    pub(crate) fn command_of(&self, program: &Path) -> Command {
        let mut command = if nix::unistd::geteuid().is_root() {
            let mut command = Command::new("setpriv");
            command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
            command
        } else {
            Command::new(program)
        };
        command.env_clear().current_dir(self.place.path("here"));
        command.env("PATH", "/usr/local/bin:/usr/bin:/bin").env("HOME", self.place.path("home"));
        command
    }
}

fn open(path: &Path) {
    fs::set_permissions(path, fs::Permissions::from_mode(0o777)).unwrap();
}

const RUN: [&str; 5] = ["run", "job", "--", "echo", "held"];

#[test]
fn the_default_store_is_the_users_own_and_says_so_once() {
    let user = OrdinaryUser::new();
    let output = output(user.command().args(RUN));
    assert_eq!((code(&output), stdout(&output).as_str()), (0, "held\n"), "{}", stderr(&output));
    let directory = user.place.path("home/.local/state/fencelock");
    let said = stderr(&output);
    assert!(said.starts_with("fencelock: no store is named: locking on this host only, in file:///"), "{said}");
    for part in [directory.to_str().unwrap(), "--store", "FENCELOCK_STORE", "/etc/fencelock.toml"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(directory.is_dir());
    assert_eq!(ended(user.command().args(["run", "--quiet", "job", "--", "true"])), (0, String::new()));
}

#[test]
fn the_default_store_can_be_refused() {
    let user = OrdinaryUser::new();
    let (code, text) = ended(user.command().arg("--require-store").args(RUN));
    assert_eq!(code, 78);
    assert!(text.contains("FENCELOCK_STORE") && text.contains("--store"), "{text}");
    assert!(!user.place.path("home/.local").exists());
}

#[test]
fn a_wait_says_that_it_looks_at_the_default_store() {
    let (code, text) = ended(OrdinaryUser::new().command().args(["wait", "job"]));
    assert!(code == 0 && text.contains("no store is named: locking on this host only, in file:///"), "{code} {text}");
}

#[test]
fn jobs_and_elections_refuse_the_default_store_and_say_how_to_name_one() {
    let user = OrdinaryUser::new();
    let named = format!("file://{}", user.place.path("home/named").display());
    for (arguments, with_a_name) in [
        (&["run", "--quiet", "--try", "-E", "0", "--once-per", "5m", "job", "--", "touch", "ran"][..], 0),
        (&["run", "--quiet", "--slot", "2026-11-26", "other", "--", "touch", "ran"], 0),
        (&["run", "--quiet", "--hold-at-least", "1ms", "job", "--", "touch", "ran"], 0),
        (&["elect", "--quiet", "leader", "--", "touch", "ran"], 0),
        (&["jobs"], 0),
        (&["jobs", "--check", "never"], 1),
    ] {
        let (code, text) = ended(user.command().args(arguments));
        assert_eq!((code, text.lines().count()), (78, 1), "{arguments:?}: {text}");
        for part in
            ["--store URL", "file:///", "--config", "FENCELOCK_STORE", "fencelock.toml here", "/etc/fencelock.toml"]
        {
            assert!(text.contains(part), "{arguments:?}, {part}: {text}");
        }
        assert!(!user.place.path("home/.local").exists() && !user.place.path("here/ran").exists());
        assert_eq!(ended(user.command().args(["--store", &named]).args(arguments)).0, with_a_name, "{arguments:?}");
        let _ = fs::remove_file(user.place.path("here/ran"));
    }
}

#[test]
fn a_default_store_on_a_file_system_that_is_not_allowed_is_no_wrong_usage_and_says_what_to_write() {
    let user = OrdinaryUser::new();
    fs::create_dir(user.place.path("state")).unwrap();
    std::os::unix::fs::symlink("/proc", user.place.path("state/fencelock")).unwrap();
    for arguments in [&["run", "--quiet", "job", "--", "true"][..], &["show", "job"], &["ls"]] {
        let mut command = user.command();
        let (code, text) = ended(command.env("XDG_STATE_HOME", user.place.path("state")).args(arguments));
        assert_eq!(code, 78, "{arguments:?}: {text}");
        for part in ["no store is named", "--store file:///path/on/a/local/disk", "of type 0x9fa0", "allowed ext2"] {
            assert!(text.contains(part), "{arguments:?}, {part}: {text}");
        }
    }
    let (code, text) = ended(user.command().args(["--store", "file:///proc", "show", "job"]));
    assert_eq!(code, 64, "{text}");
    assert!(text.contains("of type 0x9fa0") && text.contains("on a local disk"), "{text}");
}

#[test]
fn without_a_home_the_error_says_what_to_set() {
    let user = OrdinaryUser::new();
    let (code, text) = ended(user.command().env_remove("HOME").args(RUN));
    assert_eq!(code, 78);
    assert!(text.contains("HOME") && text.contains("XDG_STATE_HOME") && text.contains("FENCELOCK_STORE"), "{text}");
}

#[test]
fn files_and_the_environment_name_the_store() {
    let user = OrdinaryUser::new();
    let store = |name: &str| user.place.path(name);
    let file = |path: &str, name: &str| {
        fs::write(user.place.path(path), format!("store = \"file://{}\"\n", store(name).display())).unwrap();
    };
    file("home/.config/fencelock/fencelock.toml", "of-user");
    assert_eq!(ended(user.command().args(RUN)), (0, String::new()));
    assert!(store("of-user").is_dir());
    file("here/fencelock.toml", "of-directory");
    assert_eq!(ended(user.command().args(RUN)), (0, String::new()));
    assert!(store("of-directory").is_dir());
    let url = |name: &str| format!("file://{}", store(name).display());
    assert_eq!(ended(user.command().env("FENCELOCK_STORE", url("of-variable")).args(RUN)), (0, String::new()));
    assert!(store("of-variable").is_dir());
    let mut option = user.command();
    option.env("FENCELOCK_STORE", "bogus:").args(["--store", &url("of-option")]).args(RUN);
    assert_eq!(ended(&mut option), (0, String::new()));
    assert!(store("of-option").is_dir());
}

#[test]
fn unknown_keys_and_empty_variables_are_refused() {
    let place = Place::new();
    fs::write(place.path("fencelock.toml"), "stores = \"file:///x\"\n").unwrap();
    let (code, text) = ended(binary().current_dir(place.directory.path()).args(RUN));
    assert_eq!(code, 78);
    assert!(text.contains("fencelock.toml") && text.contains("line 1") && text.contains("stores"), "{text}");
    let (code, text) = ended(place.fencelock(&RUN).env("FENCELOCK_STORE", ""));
    assert_eq!(code, 78);
    assert!(text.contains("FENCELOCK_STORE is empty"), "{text}");
}

#[test]
fn credentials_are_never_shown() {
    let place = Place::new();
    let secret = "me:s3cret";
    fs::write(place.path("fencelock.toml"), format!("store = \"bogus://{secret}@host/x\nstore")).unwrap();
    let url = format!("bogus://{secret}@host/x");
    let mut in_file = place.fencelock(&RUN);
    in_file.env_remove("FENCELOCK_STORE");
    let mut shown = vec![ended(&mut in_file)];
    shown.push(ended(place.fencelock(&RUN).env("FENCELOCK_STORE", &url)));
    shown.push(ended(place.fencelock(&["--store", &url]).args(RUN)));
    shown.push(ended(&mut place.fencelock(&[&url])));
    shown.push(ended(&mut place.fencelock(&["ls", "--stor", &url])));
    for (code, text) in &shown {
        assert!([64, 78].contains(code), "{code} {text}");
        assert!(!text.contains("s3cret"), "{text}");
    }
    assert!(shown[2].1.contains("--store can be read in the list of processes"), "{}", shown[2].1);
}

#[test]
fn wrong_urls_name_what_is_allowed() {
    let place = Place::new();
    for (url, said) in [
        ("bogus:///x", "file"),
        ("localhost:6379", "redis://"),
        ("zookeeper://h/x", " zk "),
        ("etcd://h/x?no_such=1", "no_such"),
        ("mysql://h/x", "a user is named"),
        ("postgres://h/x", "a user is named"),
        ("file:///x?ttl=1", "ttl_ms"),
        ("zk://h/x?tick=1", "tick_ms"),
        ("file:///x?ttl_ms=1", "ttl allowed 100ms to 24h"),
        ("nothing", "scheme"),
        ("file:///x?no_such=1", "no_such"),
        ("file:///x?inherit=maybe", "inherit"),
        ("file:///x?inherit=true&inherit=false", "twice"),
        ("file:///x?ttl_ms=x", "ttl_ms"),
        ("memory:", "the memory of one process"),
    ] {
        let (code, text) = ended(place.fencelock(&RUN).env("FENCELOCK_STORE", url));
        assert_eq!(code, 64, "{text}");
        assert!(text.contains(said) && text.contains("FENCELOCK_STORE"), "{text}");
    }
}

#[test]
fn a_file_that_is_not_regular_is_no_configuration() {
    let place = Place::new();
    nix::unistd::mkfifo(&place.path("fencelock.toml"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (code, text) = ended(place.fencelock(&RUN).env_remove("FENCELOCK_STORE"));
    assert_eq!(code, 78, "{text}");
    assert!(text.contains("fencelock.toml: not a regular file"), "{text}");
}

/// A group whose only members are the users of a test.
const GROUP: u32 = 54_321;

/// `fencelock` as the user `id` in a common group; root alone can become any.
fn as_user(user: &OrdinaryUser, id: u32, url: &str) -> Command {
    let mut command = Command::new("setpriv");
    command.args([format!("--reuid={id}"), format!("--regid={id}")]).args([format!("--groups={GROUP}"), "--".into()]);
    command.arg(&user.program).env("FENCELOCK_STORE", url).current_dir(user.place.path("here"));
    command
}

#[test]
fn users_share_a_directory_of_their_group_and_shut_each_other_out() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let user = OrdinaryUser::new();
    let store = user.place.path("shared");
    fs::create_dir(&store).unwrap();
    std::os::unix::fs::chown(&store, None, Some(GROUP)).unwrap();
    fs::set_permissions(&store, fs::Permissions::from_mode(0o2770)).unwrap();
    let url = format!("file://{}", store.display());
    let [mut one, mut other] = [65534, 65533].map(|id| as_user(&user, id, &url));
    assert_eq!(ended(one.args(RUN)), (0, String::new()));
    // Later, the numbers that were set aside are used up.
    let ceiling = store.join("ceiling");
    let text = fs::read_to_string(&ceiling).unwrap();
    let (kept, _) = text.rsplit_once("\"ceiling\":").unwrap();
    fs::write(&ceiling, format!("{kept}\"ceiling\":1}}")).unwrap();
    assert_eq!(ended(other.args(RUN)), (0, String::new()));
    let mut holder = as_user(&user, 65534, &url);
    let mut holder = Running::start(holder.args(["run", "job", "--", "cat"]).stdin(std::process::Stdio::piped()));
    crate::common::until("the other user is shut out", || {
        let (code, _) = ended(as_user(&user, 65533, &url).args(["run", "--try", "job", "--", "true"]));
        (code == 75).then_some(())
    });
    drop(holder.0.as_mut().unwrap().stdin.take());
    assert_eq!(holder.code(), 0);
    assert_eq!(ended(as_user(&user, 65533, &url).args(RUN)), (0, String::new()));
}

/// Makes a configuration that names a store of its own, and gives it to the user `id`.
fn configuration_of(user: &OrdinaryUser, id: u32) -> PathBuf {
    let path = user.place.path("here/fencelock.toml");
    let _ = fs::remove_file(&path);
    fs::write(&path, format!("store = \"file://{}\"\n", user.place.path("planted").display())).unwrap();
    std::os::unix::fs::chown(&path, Some(id), Some(id)).unwrap();
    path
}

#[test]
fn a_configuration_is_obeyed_only_if_it_is_the_users_or_roots() {
    if !nix::unistd::geteuid().is_root() {
        return;
    }
    let user = OrdinaryUser::new();
    let as_root = || {
        let mut command = binary();
        command.current_dir(user.place.path("here")).arg("--require-store").args(RUN);
        command
    };
    let as_them = || {
        let mut command = user.command();
        command.args(RUN);
        command
    };
    for (owner, mut command) in [(65534, as_root()), (65533, as_them())] {
        let path = configuration_of(&user, owner);
        let (code, said) = ended(&mut command);
        assert_eq!(code, 78, "{said}");
        assert!(said.contains("fencelock.toml") && said.contains(&format!("user id {owner}")), "{said}");
        assert!(said.contains("--store") && said.contains("chown"), "{said}");
        // The store that the variable names is used, even if another user owns the planted configuration.
        assert_eq!(ended(command.env("FENCELOCK_STORE", format!("{}-{owner}", user.place.url()))), (0, String::new()));
        // Nor does a link of theirs to a file of root's name the store.
        let elsewhere = user.place.path("of-root.toml");
        fs::copy(&path, &elsewhere).unwrap();
        fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &path).unwrap();
        std::os::unix::fs::lchown(&path, Some(owner), Some(owner)).unwrap();
        let (code, said) = ended(command.env_remove("FENCELOCK_STORE"));
        assert_eq!((code, said.contains("the link belongs to")), (78, true), "{said}");
    }
    assert!(!user.place.path("planted").exists());
    for (owner, mut command) in [(0, as_root()), (0, as_them()), (65534, as_them())] {
        configuration_of(&user, owner);
        open(user.place.directory.path());
        assert_eq!(ended(&mut command), (0, String::new()), "of {owner}");
        fs::remove_dir_all(user.place.path("planted")).unwrap();
    }
}

#[test]
fn a_configuration_that_every_user_may_write_is_not_obeyed() {
    let place = Place::new();
    let path = place.path("fencelock.toml");
    fs::write(&path, format!("store = \"{}\"\n", place.url())).unwrap();
    open(&path);
    let run = || ended(binary().current_dir(place.directory.path()).args(RUN));
    let (code, said) = run();
    assert_eq!((code, said.contains("fencelock.toml: every user may write to it")), (78, true), "{said}");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
    assert_eq!(run(), (0, String::new()));
}

#[test]
fn a_secret_that_other_users_can_read_is_refused_with_the_chmod_that_helps() {
    let place = Place::new();
    let (config, secret) = (place.path("fencelock.toml"), place.path("secret"));
    fs::write(&secret, "0123456789abcdef").unwrap();
    let from_config = ["run", "--connect-wait", "0", "job", "--", "true"];
    let url = place.url();
    let serve = ["--store", &url, "serve", "--token-file", "secret"];
    let cases = [
        ("store = \"redis://me:s3cret@127.0.0.1:1\"".to_owned(), &from_config[..], &config, 69),
        ("store = \"postgres://me@127.0.0.1:1/x?password=s3cret\"".to_owned(), &from_config, &config, 69),
        ("[routes]\n\"**\" = \"redis://me:s3cret@127.0.0.1:1\"".to_owned(), &from_config, &config, 69),
        (String::new(), &serve, &secret, 69),
    ];
    for (text, arguments, kept, accepted) in cases {
        fs::write(&config, &text).unwrap();
        fs::set_permissions(&config, fs::Permissions::from_mode(0o600)).unwrap();
        for (mode, expected) in [(0o640, 78), (0o604, 78), (0o600, accepted)] {
            fs::set_permissions(kept, fs::Permissions::from_mode(mode)).unwrap();
            let (code, said) = ended(binary().current_dir(place.directory.path()).args(arguments));
            assert_eq!((code, said.contains("chmod 600")), (expected, expected == 78), "{mode:o} {text}: {said}");
            assert!(!said.contains("s3cret") && !said.contains("0123456789abcdef"), "{said}");
        }
    }
    fs::write(&config, format!("store = \"{}\"\n", place.url())).unwrap();
    fs::set_permissions(&config, fs::Permissions::from_mode(0o644)).unwrap();
    let run = ["run", "job", "--", "true"];
    assert_eq!(ended(binary().current_dir(place.directory.path()).args(run)), (0, String::new()), "it has no secret");
}

#[test]
fn the_store_is_named_wherever_waiting_is_said_and_where_locks_are_shown() {
    let place = Place::new();
    fs::write(place.path("fencelock.toml"), format!("store = \"{}\"\n", place.url())).unwrap();
    let holder = place.holder("job");
    let name = format!("file://{}", place.path("store").display());
    let from_file = format!("{name} (./fencelock.toml)");
    let here = |arguments: &[&str]| {
        let mut command = place.fencelock(arguments);
        command.env_remove("FENCELOCK_STORE");
        command
    };
    for arguments in [&["ls"][..], &["show", "job"], &["show", "idle"]] {
        let shown = stdout(&output(&mut here(arguments)));
        assert!(shown.ends_with(&format!("store: {from_file}\n")), "{arguments:?}: {shown}");
    }
    for limit in [&["--try"][..], &["--connect-wait", "180s", "--wait", "2s"]] {
        let (code, said) = ended(here(&["run"]).args(limit).args(["job", "--", "true"]));
        assert_eq!((code, said.contains(&from_file)), (75, true), "{said}");
    }
    let told = place.path("told");
    let mut waiting = here(&["run", "job", "--", "true"]);
    let waiting = waiting.env("FENCELOCK_STORE", place.url()).stderr(fs::File::create(&told).unwrap());
    let waiter = Running::start(waiting);
    line_with(&told, &format!("waiting for job in {name}, held by pid {}", holder.pid()));
    drop(waiter);
    let (_, said) = ended(&mut here(&["break", "idle", "--yes", "--reason", "x"]));
    assert!(said.contains(&from_file), "{said}");
}

#[test]
fn a_password_is_warned_of_only_where_there_is_one() {
    let place = Place::new();
    // No server listens there, and the command waits for none.
    let run = ["run", "--connect-wait", "0", "job", "--", "true"];
    let warned = |url: &str| ended(place.fencelock(&["--store", url]).args(run)).1.contains("list of processes");
    assert!(warned("zk://me:s3cret@127.0.0.1:1/x"));
    assert!(!warned("zk://me@127.0.0.1:1/x") && !warned("zk://me:@127.0.0.1:1/x") && !warned("zk://127.0.0.1:1/x"));
}
