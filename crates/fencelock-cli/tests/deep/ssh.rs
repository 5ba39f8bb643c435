//! `fencelock run … ssh …`: a command that asks at the terminal for a host key and a passphrase, and works on another machine.
//!
//! The server is a real one of this machine, for the user of the tests, with keys and a configuration of its own.

use std::fs::write;
use std::process::{Child, Command, Stdio};

use crate::common::terminal::{Screen, in_front, shell};
use crate::common::{Place, is_alive, until, written};
use fencelock_testbed::{Port, SSH};

const PASSPHRASE: &str = "pass phrase";

/// A server, and the words that lead a client there.
struct Server {
    child: Child,
    ssh: String,
    /// Reserves the port, so that no other test takes it.
    _port: Port,
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn key(place: &Place, file: &str, passphrase: &str) {
    let mut keygen = Command::new("ssh-keygen");
    keygen.args(["-q", "-t", "ed25519", "-N", passphrase, "-f"]).arg(place.path(file));
    assert!(keygen.status().unwrap().success());
}

fn server(place: &Place) -> Server {
    SSH.require();
    key(place, "host", "");
    key(place, "key", PASSPHRASE);
    if nix::unistd::geteuid().is_root() {
        // Where root's server keeps nothing; the package makes it when its daemon is started, which it is not here.
        std::fs::create_dir_all("/run/sshd").unwrap();
    }
    let port = Port::reserve().unwrap();
    let address = port.address();
    let [host, known, public] = ["host", "known", "key.pub"].map(|file| place.path(file).display().to_string());
    let settings = format!(
        "Port {}\nListenAddress {}\nHostKey {host}\nAuthorizedKeysFile {public}\nPidFile none\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\n",
        address.port(),
        address.ip()
    );
    write(place.path("sshd_config"), settings).unwrap();
    let mut sshd = Command::new("/usr/sbin/sshd");
    sshd.args(["-D", "-e", "-f"]).arg(place.path("sshd_config"));
    let child = sshd.stdin(Stdio::null()).stderr(std::fs::File::create(place.path("log")).unwrap()).spawn().unwrap();
    until("the server listens", || std::net::TcpStream::connect(address).ok());
    let ssh = format!(
        "ssh -F /dev/null -o IdentityAgent=none -o IdentitiesOnly=yes -o GlobalKnownHostsFile=/dev/null -o UserKnownHostsFile={known} -i {} -p {} {}",
        place.path("key").display(),
        address.port(),
        address.ip()
    );
    Server { child, ssh, _port: port }
}

/// Answers both questions of ssh, which asks them at `/dev/tty` and not at its input.
fn answer(screen: &mut Screen) {
    screen.shows("fingerprint])? ");
    screen.types("yes\n");
    screen.shows("Enter passphrase for key");
    screen.asks_for_a_secret();
    screen.types(&format!("{PASSPHRASE}\n"));
}

#[test]
fn a_client_that_asks_for_a_host_key_and_a_passphrase_runs_its_command_and_the_code_is_ours() {
    let place = Place::new();
    let server = server(&place);
    // Without input, and with the input of a pipeline.
    for (round, input) in ["", "echo through | "].into_iter().enumerate() {
        let _ = std::fs::remove_file(place.path("known"));
        let far = format!("cd {}; cat > far{round}; exit 7", place.directory.path().display());
        let mut screen = shell(&place);
        let here = if round == 0 { " < /dev/null" } else { "" };
        screen.types(&format!("{input}\"$FL\" run job -- {} '{far}'{here}; echo code=$?\n", server.ssh));
        answer(&mut screen);
        screen.shows("code=7");
        let expected = if round == 0 { "" } else { "through\n" };
        assert_eq!(std::fs::read_to_string(place.path(&format!("far{round}"))).unwrap(), expected);
        assert_eq!(place.contenders("job").len(), 0);
    }
}

#[test]
fn interrupt_inside_of_a_session_on_another_machine_ends_the_command_there_and_not_us() {
    let place = Place::new();
    let server = server(&place);
    let mut screen = shell(&place);
    let far = format!("cd {}; exec bash --norc --noprofile -i", place.directory.path().display());
    screen.types(&format!("\"$FL\" run job -- {} -t '{far}'; echo code=$?\n", server.ssh));
    answer(&mut screen);
    screen.shows("bash-");
    screen.types("sh -c 'echo $$ > far; exec sleep 600'\n");
    let far: i32 = written(&place.path("far")).trim().parse().unwrap();
    in_front(far);
    assert_eq!(place.contenders("job").len(), 1);
    screen.types("\u{3}");
    until("the command there is ended", || (!is_alive(far)).then_some(()));
    screen.shows("bash-");
    assert_eq!(place.contenders("job").len(), 1, "the lock is held as long as the session");
    screen.types("exit 3\n");
    screen.shows("code=3");
    assert_eq!(place.contenders("job").len(), 0);
}

#[test]
fn interrupt_while_a_client_asks_ends_it_and_us() {
    let place = Place::new();
    let server = server(&place);
    let mut screen = shell(&place);
    screen.types(&format!("\"$FL\" run job -- {} true; echo code=$?\n", server.ssh));
    screen.shows("fingerprint])? ");
    screen.types("yes\n");
    screen.shows("Enter passphrase for key");
    screen.asks_for_a_secret();
    screen.types("\u{3}");
    screen.shows("here> ");
    assert_eq!(place.contenders("job").len(), 0);
    screen.types("echo still=$((40 + 2))\n");
    screen.shows("still=42");
}
