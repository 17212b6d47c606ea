//! PostgreSQL's own programs do its backups: when they are installed we run them, else we say what to run.

use std::{path::Path, process::Stdio};

use tokio::process::Command;

use crate::{cli::Failure, config::Config};

/// Writes a dump into a file that exists.
pub async fn dump(config: &Config, file: &Path) -> Result<(), Failure> {
    let args = ["--format=custom", "--no-owner", "--no-privileges", "--file"];
    run(config, "pg_dump", &args, file, &["--dbname"]).await
}

/// Puts a dump in place of what is in the database, all or nothing.
pub async fn restore(config: &Config, file: &Path) -> Result<String, Failure> {
    use std::io::Read as _;
    let mut head = [0u8; 5];
    let read = std::fs::File::open(file).and_then(|mut open| open.read_exact(&mut head));
    read.map_err(|error| Failure::Failed(format!("{}: {error}", file.display())))?;
    if &head != b"PGDMP" {
        return Err(Failure::Failed(format!("{}: not a backup of a PostgreSQL Board", file.display())));
    }
    let args = [
        "--clean",
        "--if-exists",
        "--single-transaction",
        "--exit-on-error",
        "--no-owner",
        "--no-privileges",
        "--dbname",
    ];
    let (url, password) = split(&config.database_url);
    let args: Vec<&str> = args.into_iter().chain([url.as_str()]).collect();
    start("pg_restore", &args, file, &[], &password).await?;
    Ok("restored into the PostgreSQL database".into())
}

async fn run(config: &Config, program: &str, args: &[&str], file: &Path, then: &[&str]) -> Result<(), Failure> {
    let (url, password) = split(&config.database_url);
    let then: Vec<&str> = then.iter().copied().chain([url.as_str()]).collect();
    start(program, args, file, &then, &password).await
}

async fn start(program: &str, args: &[&str], file: &Path, then: &[&str], password: &str) -> Result<(), Failure> {
    let mut command = Command::new(program);
    command.args(args).arg(file).args(then).stdin(Stdio::null());
    if !password.is_empty() {
        // Not on the command line, where everybody on the machine could read it.
        command.env("PGPASSWORD", password);
    }
    let output = match command.output().await {
        Ok(output) => output,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            let words = args.join(" ");
            let file = file.display();
            return Err(Failure::Failed(format!(
                "{program} is not installed here (Debian: apt install postgresql-client). Where it is, run: \
                 {program} {words} {file} {}",
                then.join(" ")
            )));
        }
        Err(error) => return Err(Failure::Failed(format!("{program}: {error}"))),
    };
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Failure::Failed(format!("{program} failed: {}", said.trim())))
}

/// The address without its password, and the password.
fn split(url: &str) -> (String, String) {
    let whole = || (url.to_owned(), String::new());
    let Some((scheme, rest)) = url.split_once("://") else { return whole() };
    let Some((user, host)) = rest.split_once('@') else { return whole() };
    let Some((name, password)) = user.split_once(':') else { return whole() };
    (format!("{scheme}://{name}@{host}"), decoded(password))
}

fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let (mut out, mut at) = (Vec::with_capacity(bytes.len()), 0);
    while at < bytes.len() {
        let hex = text.get(at + 1..at + 3).and_then(|digits| u8::from_str_radix(digits, 16).ok());
        match (bytes[at], hex) {
            (b'%', Some(byte)) => {
                out.push(byte);
                at += 3;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_password_leaves_the_address() {
        let (url, password) = super::split("postgres://board:p%40ss%3A%@db:5432/board?sslmode=require");
        assert_eq!((url.as_str(), password.as_str()), ("postgres://board@db:5432/board?sslmode=require", "p@ss:%"));
        assert_eq!(super::split("postgres://db/board"), ("postgres://db/board".into(), String::new()));
    }
}
