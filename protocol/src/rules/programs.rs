//! Programs that run others, and how the others are named in their arguments.

use super::{command::Word, pattern::PatternWord};

/// How a program names what else it runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProgramKind {
    /// Another program stands behind its options: `sudo`, `xargs`.
    Wrapper,
    /// Behind `-exec` and its like.
    Find,
    /// Behind `run` or `exec`.
    Container,
    /// A text of commands is an argument or its input.
    Shell,
    /// A text in a language of its own is an argument or its input.
    Interpreter,
    Plain,
}

const WRAPPERS: &[&str] = &[
    ".",
    "alias",
    "at",
    "batch",
    "builtin",
    "bunx",
    "busybox",
    "bwrap",
    "caffeinate",
    "chpst",
    "chroot",
    "chrt",
    "command",
    "coproc",
    "crontab",
    "dbus-run-session",
    "direnv",
    "doas",
    "entr",
    "env",
    "eval",
    "exec",
    "fakeroot",
    "fd",
    "fdfind",
    "firejail",
    "flock",
    "gdb",
    "hyperfine",
    "ionice",
    "ltrace",
    "nice",
    "nix-shell",
    "nohup",
    "npx",
    "nsenter",
    "numactl",
    "parallel",
    "perf",
    "pipx",
    "pkexec",
    "pnpx",
    "prlimit",
    "proot",
    "runuser",
    "rush",
    "screen",
    "script",
    "setpriv",
    "setsid",
    "socat",
    "source",
    "ssh",
    "ssh-agent",
    "start-stop-daemon",
    "stdbuf",
    "strace",
    "su",
    "sudo",
    "systemd-run",
    "taskset",
    "time",
    "timeout",
    "tmux",
    "toybox",
    "trap",
    "unbuffer",
    "unshare",
    "uvx",
    "valgrind",
    "watch",
    "watchexec",
    "xargs",
    "xvfb-run",
];
const SHELLS: &[&str] = &[
    "ash", "bash", "csh", "dash", "elvish", "fish", "ksh", "mksh", "nu", "pwsh", "rbash", "sh", "tcsh", "xonsh",
    "yash", "zsh",
];
const INTERPRETERS: &[&str] = &[
    "R",
    "Rscript",
    "awk",
    "bun",
    "deno",
    "expect",
    "gawk",
    "goawk",
    "groovy",
    "guile",
    "irb",
    "jshell",
    "julia",
    "lua",
    "luajit",
    "m4",
    "mawk",
    "nawk",
    "node",
    "nodejs",
    "osascript",
    "perl",
    "php",
    "pypy",
    "python",
    "ruby",
    "tclsh",
    "ts-node",
    "tsx",
    "wish",
];
/// Programs with commands somewhere in their arguments or files, beside those above: no page writes a permission for them.
const OTHER_RUNNERS: &[&str] = &[
    "ed", "emacs", "ex", "gmake", "just", "ld.so", "less", "make", "man", "ninja", "nvim", "rg", "rsync", "scp", "sed",
    "sftp", "sort", "split", "tar", "vi", "vim", "zip",
];
/// Programs whose first argument says what they do.
const COMMANDS_OF_COMMANDS: &[&str] = &[
    "asdf",
    "bun",
    "bundle",
    "cargo",
    "conda",
    "docker",
    "gh",
    "git",
    "go",
    "gradle",
    "hatch",
    "helm",
    "kubectl",
    "mamba",
    "mise",
    "mvn",
    "nix",
    "npm",
    "pdm",
    "pip",
    "pipenv",
    "pixi",
    "pnpm",
    "podman",
    "poetry",
    "rustup",
    "systemctl",
    "uv",
    "yarn",
];
/// Programs of projects and environments that run others behind one of [`RUN_WORDS`], with what stands there before them.
const RUNNERS: &[&str] = &[
    "asdf", "bun", "bundle", "cargo", "conda", "hatch", "mamba", "mise", "nix", "npm", "pdm", "pipenv", "pixi", "pnpm",
    "poetry", "rustup", "uv", "yarn",
];
const RUN_WORDS: &[&str] = &["develop", "dlx", "exec", "run", "shell", "x"];
/// Beside [`RUN_WORDS`] some commands run a program that their arguments name, or that comes with a package.
const RUNNING_COMMANDS: &[(&str, &[&str])] = &[
    (
        "git",
        &[
            "archive",
            "bisect",
            "clone",
            "config",
            "diff",
            "difftool",
            "fetch",
            "filter-branch",
            "for-each-repo",
            "grep",
            "log",
            "ls-remote",
            "mergetool",
            "pull",
            "push",
            "rebase",
            "show",
            "submodule",
        ],
    ),
    ("cargo", &["install"]),
    ("npm", &["install"]),
    ("pnpm", &["install"]),
    ("yarn", &["install"]),
    ("bun", &["add", "install"]),
    ("bundle", &["install"]),
    ("pdm", &["add", "build", "install"]),
    ("pip", &["download", "install", "wheel"]),
    ("poetry", &["add", "build", "install"]),
    ("uv", &["add", "build", "pip", "sync", "tool"]),
    ("go", &["generate", "test", "tool"]),
];
/// Configuration that git takes a program from.
const GIT_PROGRAM_KEYS: &[&str] = &[
    "alias.",
    "askpass",
    "cmd",
    "command",
    "editor",
    "external",
    "fsmonitor",
    "helper",
    "hookspath",
    "pager",
    "program",
    "sshcommand",
];

/// The name of a program without its folder.
pub(super) fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or_default()
}

/// How a program, by whatever version of its name, names others.
pub(super) fn kind(program: &str) -> ProgramKind {
    let name = base(program);
    let stem = name.split(|c: char| c.is_ascii_digit()).next().unwrap_or_default().trim_end_matches(['-', '.']);
    let is_in = |list: &[&str]| list.contains(&name) || !stem.is_empty() && list.contains(&stem);
    match name {
        "find" => ProgramKind::Find,
        "docker" | "podman" => ProgramKind::Container,
        _ if is_in(SHELLS) => ProgramKind::Shell,
        _ if is_in(INTERPRETERS) || name.starts_with("python") => ProgramKind::Interpreter,
        _ if is_in(WRAPPERS) => ProgramKind::Wrapper,
        _ => ProgramKind::Plain,
    }
}

/// Why a permission for these words is more than it seems; `None` when it is not.
pub(super) fn is_too_wide(words: &[PatternWord]) -> Option<&'static str> {
    let PatternWord::Is(program) = words.first()? else { return Some("it would allow every program") };
    let name = base(program);
    if program.contains('/') && !["/usr/", "/bin/", "/sbin/"].iter().any(|folder| program.starts_with(folder)) {
        return Some("the agent may change the file that it names");
    }
    if kind(program) != ProgramKind::Plain && !COMMANDS_OF_COMMANDS.contains(&name)
        || OTHER_RUNNERS.contains(&name)
        || name.starts_with("ld-")
    {
        return Some("it names a program that runs others");
    }
    let is_open = words.iter().any(|word| !matches!(word, PatternWord::Is(_)));
    if !COMMANDS_OF_COMMANDS.contains(&name) {
        let runs = matches!(words.get(1)?, PatternWord::Is(command) if RUN_WORDS.contains(&command.as_str()));
        return (runs && is_open).then_some("with other arguments it runs programs");
    }
    match words.get(1)? {
        PatternWord::Is(command) if !command.starts_with(['-', '+']) => {
            let runs = RUN_WORDS.contains(&command.as_str())
                || RUNNING_COMMANDS.iter().any(|(of, commands)| *of == name && commands.contains(&command.as_str()));
            (runs && is_open).then_some("with other arguments this command runs programs, or writes files")
        }
        _ => Some("say which of its commands is allowed"),
    }
}

/// Where the program stands that a program of projects or environments runs, or what comes before it; `None` when it runs none.
pub(super) fn run_behind(words: &[Word]) -> Option<usize> {
    let (program, rest) = words.split_first()?;
    let at = rest.iter().position(|word| RUN_WORDS.contains(&word.text.as_str()))?;
    RUNNERS.contains(&base(&program.text)).then_some(at + 2)
}

/// Whether git is told to run something else than its command says.
pub(super) fn is_git_in_disguise(words: &[Word]) -> bool {
    let is_git = words.first().is_some_and(|word| base(&word.text) == "git");
    is_git
        && words.windows(2).any(|pair| {
            let [option, value] = pair else { return false };
            let key = value.text.split('=').next().unwrap_or_default().to_ascii_lowercase();
            matches!(option.text.as_str(), "-c" | "--config-env")
                && GIT_PROGRAM_KEYS.iter().any(|word| key.contains(word))
        })
}

/// How many words behind this option of git belong to it, itself included; `None` for a word that is no option.
pub(super) fn git_option_words(option: &str) -> Option<usize> {
    option.starts_with('-').then_some(match option {
        "-C" | "-c" | "--git-dir" | "--work-tree" | "--namespace" | "--exec-path" | "--config-env"
        | "--super-prefix" => 2,
        _ => 1,
    })
}

#[cfg(test)]
mod tests;
