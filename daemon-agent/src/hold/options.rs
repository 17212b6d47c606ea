//! The command line of `hold`, written by the daemon and readable by a person.

use std::{ffi::OsString, path::PathBuf};

use crate::sandbox::{Layers, Network, Rules};

/// The options, for the usage line.
pub const USAGE: &str = "[--quiet] [--duplex] [--cwd DIR] [--scratch DIR] [--layers LIST] [--require] \
    [--home DIR [--write PATH]… [--beside PATH]… [--read PATH]… [--protect PATH]… [--socket PATH]… [--network none|open] \
    [--memory BYTES]]";

/// Marks the second of a supervisor's two processes; not for people.
const INIT_OPTION: &str = "--init";

/// What to run and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HoldOptions {
    /// Discards the command's standard error, for callers that parse its output.
    pub quiet: bool,
    /// The command reads its input from what its output goes to, which is a socket, for callers that talk to it.
    pub duplex: bool,
    /// Working directory of the command.
    pub cwd: Option<PathBuf>,
    /// A private folder that is removed if the daemon is gone, because nobody else would. A command with its own `/tmp`
    /// has that inside this folder, so all commands of an attempt share it.
    pub scratch: Option<PathBuf>,
    /// What the command may touch; `None` leaves it unconfined.
    pub rules: Option<Rules>,
    /// The layers that enforce the rules, as far as the kernel supports them.
    pub layers: Layers,
    /// Whether a missing layer keeps the command from starting.
    pub require: bool,
    /// Whether this is the first process in the command's process namespace, whose parent is the supervisor.
    pub init: bool,
    /// The command and its arguments, never empty.
    pub argv: Vec<OsString>,
}

impl HoldOptions {
    /// Reads the arguments that stand after `hold`.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let mut options = Self::default();
        let mut home = None;
        let mut rules = Rules::default();
        while let Some(arg) = args.next() {
            if arg == "--" {
                options.argv = args.by_ref().collect();
                break;
            }
            let mut value = || args.next().ok_or_else(|| format!("{} needs a value", arg.display()));
            match arg.to_str() {
                Some("--quiet") => options.quiet = true,
                Some("--duplex") => options.duplex = true,
                Some("--require") => options.require = true,
                Some(INIT_OPTION) => options.init = true,
                Some("--cwd") => options.cwd = Some(value()?.into()),
                Some("--scratch") => options.scratch = Some(value()?.into()),
                Some("--layers") => options.layers = word(&value()?, Layers::parse)?,
                Some("--home") => home = Some(PathBuf::from(value()?)),
                Some("--write") => rules.write.push(value()?.into()),
                Some("--beside") => rules.beside.push(value()?.into()),
                Some("--read") => rules.read.push(value()?.into()),
                Some("--protect") => rules.protect.push(value()?.into()),
                Some("--socket") => rules.sockets.push(value()?.into()),
                Some("--network") => rules.network = word(&value()?, Network::parse)?,
                Some("--memory") => rules.memory = Some(word(&value()?, |text| text.parse().ok())?),
                _ => return Err(format!("unknown option {}", arg.display())),
            }
        }
        if options.argv.is_empty() {
            return Err("no command after --".into());
        }
        if home.is_none() && rules != Rules::default() {
            return Err("rules need --home".into());
        }
        options.rules = home.map(|home| Rules { home, ..rules });
        Ok(options)
    }

    /// The arguments that [`HoldOptions::parse`] reads back.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = Vec::new();
        let flags =
            [(self.quiet, "--quiet"), (self.duplex, "--duplex"), (self.require, "--require"), (self.init, INIT_OPTION)];
        for (set, name) in flags {
            args.extend(set.then(|| name.into()));
        }
        if self.layers != Layers::default() {
            args.extend(["--layers".into(), self.layers.to_string().into()]);
        }
        let mut option = |name: &str, path: &PathBuf| args.extend([name.into(), path.clone().into_os_string()]);
        if let Some(cwd) = &self.cwd {
            option("--cwd", cwd);
        }
        if let Some(scratch) = &self.scratch {
            option("--scratch", scratch);
        }
        if let Some(rules) = &self.rules {
            option("--home", &rules.home);
            rules.write.iter().for_each(|path| option("--write", path));
            rules.beside.iter().for_each(|path| option("--beside", path));
            rules.read.iter().for_each(|path| option("--read", path));
            rules.protect.iter().for_each(|path| option("--protect", path));
            rules.sockets.iter().for_each(|path| option("--socket", path));
            if rules.network == Network::None {
                args.extend(["--network".into(), "none".into()]);
            }
            if let Some(bytes) = rules.memory {
                args.extend(["--memory".into(), bytes.to_string().into()]);
            }
        }
        args.push("--".into());
        args.extend(self.argv.iter().cloned());
        args
    }
}

fn word<T>(value: &OsString, read: impl Fn(&str) -> Option<T>) -> Result<T, String> {
    value.to_str().and_then(read).ok_or_else(|| format!("{} is not a valid value", value.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_command_line() {
        let rules = Rules {
            home: "/h".into(),
            write: vec!["/w".into(), "--odd".into()],
            beside: vec!["/b".into()],
            read: vec!["/r".into()],
            protect: vec!["/w/p".into(), "/w/q".into()],
            sockets: vec!["/run/agent".into()],
            network: Network::None,
            memory: Some(1 << 30),
        };
        let options = HoldOptions {
            quiet: true,
            duplex: true,
            cwd: Some("/w".into()),
            scratch: Some("/tmp/x".into()),
            rules: Some(rules),
            layers: Layers { namespaces: false, ..Layers::default() },
            require: true,
            init: false,
            argv: vec!["sh".into(), "-c".into(), "--".into()],
        };
        assert_eq!(HoldOptions::parse(options.to_args()), Ok(options));
        let none = HoldOptions { layers: Layers::NONE, argv: vec!["true".into()], ..HoldOptions::default() };
        assert_eq!(HoldOptions::parse(none.to_args()), Ok(none));
    }

    #[test]
    fn wrong_usage_is_named() {
        let parse = |args: &[&str]| HoldOptions::parse(args.iter().map(OsString::from)).expect_err("wrong usage");
        assert!(parse(&["--cwd"]).contains("--cwd"));
        assert!(parse(&["--frob", "--", "true"]).contains("--frob"));
        assert!(parse(&["--"]).contains("no command"));
        assert!(parse(&["--write", "/w", "--", "true"]).contains("--home"));
        assert!(parse(&["--home", "/h", "--network", "half", "--", "true"]).contains("half"));
        assert!(parse(&["--layers", "walls", "--", "true"]).contains("walls"));
    }
}
