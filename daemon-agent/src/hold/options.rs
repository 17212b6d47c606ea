//! The command line of `hold`, written by the daemon and readable by a person.

use std::{ffi::OsString, path::PathBuf};

use crate::sandbox::Rules;

/// The options, for the usage line.
pub const USAGE: &str = "[--quiet] [--cwd DIR] [--scratch DIR] [--home DIR [--write PATH]…]";

/// What to run and how.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// What the command says about its errors goes nowhere: whoever reads its output reads nothing else.
    pub quiet: bool,
    /// Working directory of the command.
    pub cwd: Option<PathBuf>,
    /// A private folder that is removed when the daemon is gone: nobody else would.
    pub scratch: Option<PathBuf>,
    /// What the command may touch; `None` leaves it unconfined.
    pub rules: Option<Rules>,
    /// The command and its arguments, never empty.
    pub argv: Vec<OsString>,
}

impl Options {
    /// Reads the arguments that stand after `hold`.
    pub fn parse(args: impl IntoIterator<Item = OsString>) -> Result<Self, String> {
        let mut args = args.into_iter();
        let mut options = Self::default();
        let mut home = None;
        let mut write = Vec::new();
        while let Some(arg) = args.next() {
            if arg == "--" {
                options.argv = args.by_ref().collect();
                break;
            }
            let mut value = || args.next().map(PathBuf::from).ok_or_else(|| format!("{} wants a path", arg.display()));
            match arg.to_str() {
                Some("--quiet") => options.quiet = true,
                Some("--cwd") => options.cwd = Some(value()?),
                Some("--scratch") => options.scratch = Some(value()?),
                Some("--home") => home = Some(value()?),
                Some("--write") => write.push(value()?),
                _ => return Err(format!("unknown option {}", arg.display())),
            }
        }
        if options.argv.is_empty() {
            return Err("no command after --".into());
        }
        if home.is_none() && !write.is_empty() {
            return Err("--write needs --home".into());
        }
        options.rules = home.map(|home| Rules { home, write });
        Ok(options)
    }

    /// The arguments that [`Options::parse`] reads back.
    pub fn to_args(&self) -> Vec<OsString> {
        let mut args: Vec<OsString> = if self.quiet { vec!["--quiet".into()] } else { Vec::new() };
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
        }
        args.push("--".into());
        args.extend(self.argv.iter().cloned());
        args
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_survive_the_command_line() {
        let options = Options {
            quiet: true,
            cwd: Some("/w".into()),
            scratch: Some("/tmp/x".into()),
            rules: Some(Rules { home: "/h".into(), write: vec!["/w".into(), "--odd".into()] }),
            argv: vec!["sh".into(), "-c".into(), "--".into()],
        };
        assert_eq!(Options::parse(options.to_args()), Ok(options));
    }

    #[test]
    fn wrong_usage_is_named() {
        let parse = |args: &[&str]| Options::parse(args.iter().map(OsString::from)).expect_err("wrong usage");
        assert!(parse(&["--cwd"]).contains("--cwd"));
        assert!(parse(&["--frob", "--", "true"]).contains("--frob"));
        assert!(parse(&["--"]).contains("no command"));
        assert!(parse(&["--write", "/w", "--", "true"]).contains("--home"));
    }
}
