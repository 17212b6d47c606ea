//! `service install`: a background service for this user, managed by systemd or launchd.

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
const SERVICE_NAME: &str = "openviber-daemon";

/// Installs and starts the service, and prints what was done.
pub async fn install(home: &Home) -> Result<(), CliError> {
    open(home)?;
    let joined = Credential::read(home).map_err(|error| CliError::Configuration(error.to_string()))?;
    if joined.is_none() {
        return Err(CliError::Configuration(
            "this home has not joined a Board yet: daemon-agent join URL TOKEN".to_owned(),
        ));
    }
    let program = std::env::current_exe()
        .map_err(|error| CliError::Failed(format!("this program's path is unknown: {error}")))?;
    let user = user_home().ok_or_else(|| CliError::Configuration("HOME is not set".to_owned()))?;
    // The service should find the same programs on the PATH as this person's shell does.
    let path = std::env::var("PATH").unwrap_or_default();
    let service = Service { program: &program, home: home.root(), path: &path };
    if cfg!(target_os = "macos") { launchd(home, &service, &user) } else { systemd(&service, &user) }
}

/// What a service definition contains.
struct Service<'a> {
    program: &'a Path,
    home: &'a Path,
    path: &'a str,
}

fn systemd(service: &Service<'_>, user: &Path) -> Result<(), CliError> {
    let config = std::env::var_os("XDG_CONFIG_HOME").map_or_else(|| user.join(".config"), PathBuf::from);
    let path = config.join("systemd/user").join(format!("{SERVICE_NAME}.service"));
    write(&path, &unit(service))?;
    run("systemctl", &["--user", "daemon-reload"])?;
    run("systemctl", &["--user", "enable", SERVICE_NAME])?;
    run("systemctl", &["--user", "restart", SERVICE_NAME])?;
    // Without lingering, the service would end with the user's last login.
    let lingers = std::env::var("USER").map(|user| run("loginctl", &["enable-linger", &user]));
    if !matches!(lingers, Ok(Ok(()))) {
        say!("It runs while you are signed in; `sudo loginctl enable-linger $USER` keeps it running after that.");
    }
    say!("Its log: journalctl --user -u {SERVICE_NAME} -f");
    Ok(())
}

fn launchd(home: &Home, service: &Service<'_>, user: &Path) -> Result<(), CliError> {
    let label = format!("org.openviber.{SERVICE_NAME}");
    let path = user.join("Library/LaunchAgents").join(format!("{label}.plist"));
    write(&path, &plist(&label, service))?;
    let file = path.display().to_string();
    // An earlier installation may still be loaded.
    let _ = Command::new("launchctl").args(["unload", &file]).output();
    run("launchctl", &["load", "-w", &file])?;
    say!("Its log: {}", home.state().join("daemon.log").display());
    Ok(())
}

fn write(path: &Path, text: &str) -> Result<(), CliError> {
    let failed = |error: std::io::Error| CliError::Failed(format!("{}: {error}", path.display()));
    fs::create_dir_all(path.parent().unwrap_or(path)).map_err(failed)?;
    fs::write(path, text).map_err(failed)?;
    say!("Wrote {}.", path.display());
    Ok(())
}

fn run(program: &str, arguments: &[&str]) -> Result<(), CliError> {
    let line = format!("{program} {}", arguments.join(" "));
    let done = Command::new(program).args(arguments).output();
    let done = done.map_err(|error| CliError::Failed(format!("{line}: {error}")))?;
    if !done.status.success() {
        let said = String::from_utf8_lossy(&done.stderr);
        return Err(CliError::Failed(format!("{line}: {}", said.trim())));
    }
    say!("Ran {line}.");
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
