//! `service install`: a background service of this user, by systemd or launchd.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use super::{Failure, open};
use crate::{
    adapters::board::Credential,
    home::{Home, user_home},
};

/// The service's name at systemd, and the last part of it at launchd.
const NAME: &str = "openviber-daemon";

/// Installs and starts the service, and prints what was done.
pub async fn install(home: &Home) -> Result<(), Failure> {
    open(home)?;
    let joined = Credential::read(home).map_err(|error| Failure::Configuration(error.to_string()))?;
    if joined.is_none() {
        return Err(Failure::Configuration(
            "this home has not joined a Board yet: daemon-agent join URL TOKEN".to_owned(),
        ));
    }
    let program =
        std::env::current_exe().map_err(|error| Failure::Failed(format!("this program's path is unknown: {error}")))?;
    let user = user_home().ok_or_else(|| Failure::Configuration("HOME is not set".to_owned()))?;
    if cfg!(target_os = "macos") { launchd(home, &program, &user) } else { systemd(home, &program, &user) }
}

fn systemd(home: &Home, program: &Path, user: &Path) -> Result<(), Failure> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| user.join(".config"), PathBuf::from);
    let path = config.join("systemd/user").join(format!("{NAME}.service"));
    write(&path, &unit(program, home.root()))?;
    run("systemctl", &["--user", "daemon-reload"])?;
    run("systemctl", &["--user", "enable", NAME])?;
    run("systemctl", &["--user", "restart", NAME])?;
    // Without lingering the service would end with the user's last login.
    let lingers = std::env::var("USER").map(|user| run("loginctl", &["enable-linger", &user]));
    if !matches!(lingers, Ok(Ok(()))) {
        println!("It runs while you are signed in; `sudo loginctl enable-linger $USER` keeps it running after that.");
    }
    println!("Its log: journalctl --user -u {NAME} -f");
    Ok(())
}

fn launchd(home: &Home, program: &Path, user: &Path) -> Result<(), Failure> {
    let label = format!("org.openviber.{NAME}");
    let path = user.join("Library/LaunchAgents").join(format!("{label}.plist"));
    write(&path, &plist(&label, program, home.root()))?;
    let file = path.display().to_string();
    // It may be there from before.
    let _ = Command::new("launchctl").args(["unload", &file]).output();
    run("launchctl", &["load", "-w", &file])?;
    println!("Its log: {}", home.state().join("daemon.log").display());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    let failed = |error: std::io::Error| Failure::Failed(format!("{}: {error}", path.display()));
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    fs::write(path, text).map_err(failed)?;
    println!("Wrote {}.", path.display());
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), Failure> {
    let line = format!("{program} {}", arguments.join(" "));
    let done = Command::new(program).args(arguments).output();
    let done = done.map_err(|error| Failure::Failed(format!("{line}: {error}")))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(Failure::Failed(format!("{line}: {}", said.trim())));
    }
    println!("Ran {line}.");
    Ok(())
}

fn unit(program: &Path, home: &Path) -> String {
    format!(
        "[Unit]
Description=Viber Board daemon
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={} run
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
        quoted(program),
        quoted(Path::new(&format!("OPENVIBER_HOME={}", home.display()))),
    )
}

/// A word of a unit file: quotes, and `%` and `$` that systemd would replace.
fn quoted(word: &Path) -> String {
    let text = word.display().to_string();
    let text = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{text}\"")
}

fn plist(label: &str, program: &Path, home: &Path) -> String {
    let xml = |path: &Path| path.display().to_string().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    format!(
        r#"<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE plist PUBLIC "-//Apple//DTD PLIST 1.0//EN" "http://www.apple.com/DTDs/PropertyList-1.0.dtd">
<plist version="1.0">
<dict>
  <key>Label</key><string>{label}</string>
  <key>ProgramArguments</key><array><string>{}</string><string>run</string></array>
  <key>EnvironmentVariables</key><dict><key>OPENVIBER_HOME</key><string>{}</string></dict>
  <key>RunAtLoad</key><true/>
  <key>KeepAlive</key><dict><key>SuccessfulExit</key><false/></dict>
  <key>ThrottleInterval</key><integer>5</integer>
  <key>ExitTimeOut</key><integer>90</integer>
  <key>StandardErrorPath</key><string>{}</string>
</dict>
</plist>
"#,
        xml(program),
        xml(home),
        xml(&home.join("state/daemon.log")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_in_a_unit_are_quoted() {
        let unit = unit(Path::new("/opt/my tools/daemon-agent"), Path::new("/home/mia/50% \"x\""));
        assert!(unit.contains("ExecStart=\"/opt/my tools/daemon-agent\" run\n"), "{unit}");
        assert!(unit.contains("Environment=\"OPENVIBER_HOME=/home/mia/50%% \\\"x\\\"\"\n"), "{unit}");
        assert!(plist("l", Path::new("/a&b"), Path::new("/h")).contains("<string>/a&amp;b</string>"));
    }
}
