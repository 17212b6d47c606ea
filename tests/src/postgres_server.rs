//! A PostgreSQL server of a test's own, that it may kill and start again (`scripts/with-postgres` shares one among all).

use std::{
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

use tempfile::TempDir;

use crate::programs::free_port;

/// A server with an empty database `board`. Ends when dropped.
#[derive(Debug)]
pub struct PostgresServer {
    folder: TempDir,
    port: u16,
}

impl PostgresServer {
    /// Makes and starts one.
    pub fn start() -> Self {
        let folder = tempfile::Builder::new().prefix("board-cluster-").tempdir().expect("a folder");
        let server = Self { folder, port: free_port() };
        if rustix::process::geteuid().is_root() {
            // PostgreSQL refuses to run as root.
            run(Command::new("chown").arg("postgres").arg(server.folder.path()));
        }
        let args = ["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync"];
        run(server.program("initdb").arg("-D").arg(server.data()).args(args));
        server.start_again();
        let address = format!("postgres://postgres@127.0.0.1:{}/postgres", server.port);
        run(server.program("psql").args(["-q", "-c", "CREATE DATABASE board", &address]));
        server
    }

    /// The address of its database.
    pub fn url(&self) -> String {
        format!("postgres://postgres@127.0.0.1:{}/board", self.port)
    }

    /// `pg_ctl restart -m immediate`: every backend dies where it stands, then the server recovers and is back.
    pub fn restart_immediately(&self) {
        self.control(&["-m", "immediate", "restart"]);
    }

    /// Stops it; nobody answers at its address.
    pub fn stop(&self) {
        self.control(&["-m", "immediate", "stop"]);
    }

    /// Starts it again after a stop.
    pub fn start_again(&self) {
        let options = format!(
            "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off -c max_connections=100",
            self.port
        );
        self.control(&["-o", &options, "start"]);
    }

    /// Its processes stand still: connections stay, and nothing is answered.
    pub fn freeze(&self) {
        self.signal("STOP");
    }

    /// They go on.
    pub fn thaw(&self) {
        self.signal("CONT");
    }

    fn signal(&self, signal: &str) {
        let first = std::fs::read_to_string(self.data().join("postmaster.pid")).expect("a running server");
        let first = first.lines().next().expect("its process").to_owned();
        let mut kill = Command::new("kill");
        kill.arg(format!("-{signal}"));
        // The first one by itself: while it goes on, it may fork a child that is not in the list.
        run(kill.arg(&first));
        let children = Command::new("pgrep").args(["-P", &first]).output().expect("pgrep");
        let children = String::from_utf8(children.stdout).expect("numbers");
        // Some of them may have ended meanwhile.
        kill.args(children.split_whitespace()).output().expect("kill");
    }

    fn control(&self, args: &[&str]) {
        let mut command = self.program("pg_ctl");
        command.arg("-D").arg(self.data()).arg("-l").arg(self.folder.path().join("data/log")).arg("-w").args(args);
        run(&mut command);
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("data")
    }

    /// A program of PostgreSQL, run by whom it accepts.
    fn program(&self, name: &str) -> Command {
        let program = programs().join(name);
        let mut command = match rustix::process::geteuid().is_root() {
            true => {
                let mut command = Command::new("runuser");
                command.args(["-u", "postgres", "--"]).arg(program);
                command
            }
            false => Command::new(program),
        };
        command.current_dir(self.folder.path());
        command
    }
}

impl Drop for PostgresServer {
    fn drop(&mut self) {
        let mut stop = self.program("pg_ctl");
        stop.arg("-D").arg(self.data()).args(["-m", "immediate", "stop"]);
        let _ = stop.stdout(Stdio::null()).stderr(Stdio::null()).status();
    }
}

/// Where PostgreSQL's programs are: in the path, or the newest that Debian has installed.
fn programs() -> PathBuf {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).find_map(|folder| folder.join("initdb").canonicalize().ok());
    // Debian links only some of them into the path.
    if let Some(folder) = found.as_deref().and_then(Path::parent) {
        return folder.to_owned();
    }
    let version = |folder: &Path| folder.file_name().and_then(|name| name.to_str()?.parse::<u32>().ok());
    let installed = std::fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten().map(|entry| entry.path());
    let newest = installed.filter(|folder| folder.join("bin/initdb").exists()).max_by_key(|folder| version(folder));
    newest.expect("PostgreSQL is installed").join("bin")
}

fn run(command: &mut Command) {
    // The server inherits these: pipes would stay open for as long as it runs.
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status();
    let status = status.unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}");
}
