//! `service …`: a background service for this user, managed by systemd or launchd.

pub mod logs;

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{CliError, open};
use crate::{
    adapters::board::Credential,
    home::{Home, user_home},
};

/// The service's name in systemd, and the last part of its name in launchd.
pub const SERVICE_NAME: &str = "openviber-daemon";

/// What a command did to the service, step by step: printed as it happens, or all of it as one JSON object at the end.
struct Steps {
    json: bool,
    done: Vec<String>,
}

impl Steps {
    fn begin(json: bool) -> Self {
        Self { json, done: Vec::new() }
    }

    fn say(&mut self, line: String) {
        if !self.json {
            say!("{line}");
        }
        self.done.push(line);
    }

    /// Runs a program, which has to succeed.
    fn run(&mut self, program: &str, arguments: &[&str]) -> Result<(), CliError> {
        let line = format!("{program} {}", arguments.join(" "));
        let done = Command::new(program).args(arguments).output();
        let done = done.map_err(|error| CliError::Failed(format!("{line}: {error}")))?;
        if !done.status.success() {
            let said = String::from_utf8_lossy(&done.stderr);
            return Err(CliError::Failed(format!("{line}: {}", said.trim())));
        }
        self.say(format!("Ran {line}."));
        Ok(())
    }

    fn write(&mut self, path: &Path, text: &str) -> Result<(), CliError> {
        let failed = |error: std::io::Error| CliError::Failed(format!("{}: {error}", path.display()));
        fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
        fs::write(path, text).map_err(failed)?;
        self.say(format!("Wrote {}.", path.display()));
        Ok(())
    }

    /// Prints the object: the definition's file, and what was done.
    fn end(self, file: &Path) {
        if self.json {
            say!("{}", serde_json::json!({ "file": file, "steps": self.done }));
        }
    }
}

/// Installs and starts the service, and prints what was done.
pub fn install(home: &Home, json: bool) -> Result<(), CliError> {
    open(home)?;
    let joined = Credential::read(home).map_err(|error| CliError::Configuration(error.to_string()))?;
    if joined.is_none() {
        return Err(CliError::Configuration(
            "this home has not joined a Board yet: daemon-agent join URL TOKEN".to_owned(),
        ));
    }
    let program = std::env::current_exe()
        .map_err(|error| CliError::Failed(format!("this program's path is unknown: {error}")))?;
    // The service should find the same programs on the PATH as this person's shell does.
    let path = std::env::var("PATH").unwrap_or_default();
    let service = Service { program: &program, home: home.root(), path: &path };
    let (mut steps, file) = (Steps::begin(json), definition()?);
    match cfg!(target_os = "macos") {
        true => launchd(&mut steps, &file, home, &service)?,
        false => systemd(&mut steps, &file, &service)?,
    }
    steps.end(&file);
    Ok(())
}

/// Prints what the service manager says of the service; fails unless it runs.
pub fn status(json: bool) -> Result<(), CliError> {
    let path = definition()?;
    let installed = path.exists();
    let running = match cfg!(target_os = "macos") {
        true => says("launchctl", &["list", &label()])?.lines().any(|line| line.trim().starts_with("\"PID\"")),
        false => says("systemctl", &["--user", "is-active", SERVICE_NAME])? == "active",
    };
    if json {
        let file = path.display().to_string();
        say!("{}", serde_json::json!({ "installed": installed, "running": running, "file": file }));
    } else {
        match (installed, running) {
            (_, true) => say!("The service {SERVICE_NAME} is running ({}).", path.display()),
            (true, false) => say!("The service {SERVICE_NAME} is installed ({}) and does not run.", path.display()),
            (false, false) => say!("No service is installed: daemon-agent service install"),
        }
    }
    if running { Ok(()) } else { Err(CliError::Failed("the service is not running".to_owned())) }
}

/// Ends the service, which drains, and starts it again.
pub fn restart(json: bool) -> Result<(), CliError> {
    let (mut steps, path) = (Steps::begin(json), installed()?);
    match cfg!(target_os = "macos") {
        true => {
            let file = path.display().to_string();
            steps.run("launchctl", &["unload", &file])?;
            steps.run("launchctl", &["load", "-w", &file])?;
        }
        false => steps.run("systemctl", &["--user", "restart", SERVICE_NAME])?,
    }
    steps.end(&path);
    Ok(())
}

/// Ends the service and deletes its definition. The home stays as it is.
pub fn uninstall(json: bool) -> Result<(), CliError> {
    let (mut steps, path) = (Steps::begin(json), installed()?);
    match cfg!(target_os = "macos") {
        true => steps.run("launchctl", &["unload", "-w", &path.display().to_string()])?,
        false => steps.run("systemctl", &["--user", "disable", "--now", SERVICE_NAME])?,
    }
    fs::remove_file(&path).map_err(|error| CliError::Failed(format!("{}: {error}", path.display())))?;
    steps.say(format!("Removed {}.", path.display()));
    if !cfg!(target_os = "macos") {
        steps.run("systemctl", &["--user", "daemon-reload"])?;
    }
    steps.end(&path);
    Ok(())
}

/// The service's definition file, whether it exists or not.
fn definition() -> Result<PathBuf, CliError> {
    let user = user_home().ok_or_else(|| CliError::Configuration("HOME is not set".to_owned()))?;
    Ok(match cfg!(target_os = "macos") {
        true => user.join("Library/LaunchAgents").join(format!("{}.plist", label())),
        false => {
            let config = std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| user.join(".config"), PathBuf::from);
            config.join("systemd/user").join(format!("{SERVICE_NAME}.service"))
        }
    })
}

/// The definition file of a service that was installed.
fn installed() -> Result<PathBuf, CliError> {
    let path = definition()?;
    match path.exists() {
        true => Ok(path),
        false => Err(CliError::Failed("no service is installed: daemon-agent service install".to_owned())),
    }
}

/// The service's name in launchd.
fn label() -> String {
    format!("org.openviber.{SERVICE_NAME}")
}

/// What a program prints, whatever its exit code says.
fn says(program: &str, arguments: &[&str]) -> Result<String, CliError> {
    let done = Command::new(program).args(arguments).output();
    let done = done.map_err(|error| CliError::Failed(format!("{program}: {error}")))?;
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

/// What a service definition contains.
struct Service<'a> {
    program: &'a Path,
    home: &'a Path,
    path: &'a str,
}

fn systemd(steps: &mut Steps, file: &Path, service: &Service<'_>) -> Result<(), CliError> {
    steps.write(file, &unit(service))?;
    steps.run("systemctl", &["--user", "daemon-reload"])?;
    steps.run("systemctl", &["--user", "enable", SERVICE_NAME])?;
    steps.run("systemctl", &["--user", "restart", SERVICE_NAME])?;
    // Without lingering, the service would end with the user's last login.
    let lingers = std::env::var("USER").map(|user| steps.run("loginctl", &["enable-linger", &user]));
    if !matches!(lingers, Ok(Ok(()))) {
        let hint = "It runs while you are signed in; `sudo loginctl enable-linger $USER` keeps it running after that.";
        steps.say(hint.to_owned());
    }
    steps.say("Its log: daemon-agent logs -f".to_owned());
    Ok(())
}

fn launchd(steps: &mut Steps, file: &Path, home: &Home, service: &Service<'_>) -> Result<(), CliError> {
    steps.write(file, &plist(&label(), service))?;
    let file = file.display().to_string();
    // An earlier installation may still be loaded.
    let _ = Command::new("launchctl").args(["unload", &file]).output();
    steps.run("launchctl", &["load", "-w", &file])?;
    steps.say(format!("Its log: {}, or daemon-agent logs -f", home.state().join("daemon.log").display()));
    Ok(())
}

fn unit(service: &Service<'_>) -> String {
    let variable = |name: &str, value: &dyn std::fmt::Display| quoted(&format!("{name}={value}"));
    format!(
        "[Unit]
Description=Viber Board daemon
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={} run
Environment={}
Environment={}
Restart=always
RestartSec=5
# Configuration has to be mended first.
RestartPreventExitStatus=2 78
# Running tasks may end; the daemon itself sees to their processes.
KillMode=mixed
TimeoutStopSec=90
NoNewPrivileges=yes

[Install]
WantedBy=default.target
",
        // Only here would `$` name a variable.
        quoted(&service.program.display().to_string()).replace('$', "$$"),
        variable("OPENVIBER_HOME", &service.home.display()),
        variable("PATH", &service.path),
    )
}

/// Quotes a word of a unit file, and escapes `%`, which systemd would replace.
fn quoted(word: &str) -> String {
    let text = word.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%");
    format!("\"{text}\"")
}

fn plist(label: &str, service: &Service<'_>) -> String {
    let xml = |text: &str| text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>{label}</string>
  <key>ProgramArguments</key><array><string>{}</string><string>run</string></array>
  <key>EnvironmentVariables</key><dict><key>OPENVIBER_HOME</key><string>{}</string><key>PATH</key><string>{}</string></dict>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>ThrottleInterval</key><integer>5</integer>
  <key>ExitTimeOut</key><integer>90</integer>
  <key>StandardErrorPath</key><string>{}</string>
</dict>
</plist>
"#,
        xml(&service.program.display().to_string()),
        xml(&service.home.display().to_string()),
        xml(service.path),
        xml(&service.home.join("state/daemon.log").display().to_string()),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service<'a>(program: &'a str, home: &'a str) -> Service<'a> {
        Service { program: Path::new(program), home: Path::new(home), path: "/usr/bin:/home/mia/.cargo/bin" }
    }

    #[test]
    fn paths_in_a_unit_are_quoted() {
        let unit = unit(&service("/opt/my $tools/daemon-agent", "/home/mia/50% \"x\" $y"));
        assert!(unit.contains("ExecStart=\"/opt/my $$tools/daemon-agent\" run\n"), "{unit}");
        assert!(unit.contains("Environment=\"OPENVIBER_HOME=/home/mia/50%% \\\"x\\\" $y\"\n"), "{unit}");
        assert!(unit.contains("Environment=\"PATH=/usr/bin:/home/mia/.cargo/bin\"\n"), "{unit}");
        let plist = plist("l", &service("/a&b", "/h<"));
        assert!(plist.contains("<string>/a&amp;b</string>") && plist.contains("<string>/h&lt;</string>"), "{plist}");
    }
}
