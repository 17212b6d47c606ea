//! What scripts use: hosts that they name, variables that they read, programs that they start.

use std::{collections::BTreeSet, sync::LazyLock};

use regex::bytes::Regex;

use super::super::{
    bundle::{BundledFile, SkillFileMode},
    main_file::MainFile,
    permissions::{SkillNetwork, SkillPermissions},
    text::{SkillText, TextLine},
};

/// Most hosts, variables and programs that are listed, of each.
const MAX_LISTED: usize = 100;
/// Variables that every program reads.
const COMMON_VARIABLES: &[&str] = &[
    "CI",
    "COLUMNS",
    "DEBUG",
    "EDITOR",
    "HOME",
    "LANG",
    "LC_ALL",
    "LINES",
    "LOGNAME",
    "NODE_ENV",
    "NO_COLOR",
    "OSTYPE",
    "PATH",
    "PWD",
    "PYTHONPATH",
    "SHELL",
    "SKILL_DIR",
    "TEMP",
    "TERM",
    "TMP",
    "TMPDIR",
    "TZ",
    "USER",
    "USERPROFILE",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
];

/// A host in an address: after what names a person, before port and path.
static HOST: LazyLock<Regex> = LazyLock::new(|| {
    compiled(r#"(?i-u)\b(?:https?|wss?|s?ftp|ssh|git)://(?:[^\s/@"'<>]*@)?(\[[0-9a-f:.]+\]|[a-z0-9][a-z0-9._-]*)"#)
});
/// A variable in the languages of scripts, or one of a shell whose name says that it is a secret.
static VARIABLE: LazyLock<Regex> = LazyLock::new(|| {
    let name = "([A-Za-z_][A-Za-z0-9_]*)";
    let ways = [
        format!(r#"\bos\.environ(?:\.get)?\s*[\[(]\s*["']{name}"#),
        format!(r#"\bgetenv\s*\(\s*["']{name}"#),
        format!(r#"\bprocess\.env(?:\.|\[\s*["']){name}"#),
        format!(r#"\b(?:Deno|Bun)\.env(?:\.get\s*\(\s*["']|\.){name}"#),
        format!(r#"\bENV(?:\.fetch\s*\(|\[)\s*["']{name}"#),
        format!(r"\$env:{name}"),
        format!(r#"\benv::var(?:_os)?\s*\(\s*["']{name}"#),
        format!(r#"\bos\.(?:Getenv|LookupEnv)\s*\(\s*["']{name}"#),
    ];
    compiled(&format!("(?-u)(?:{})", ways.join("|")))
});
static SHELL_SECRET: LazyLock<Regex> = LazyLock::new(|| compiled(r"(?-u)\$\{?([A-Z][A-Z0-9_]*)"));
/// A variable that a line of a shell sets.
static ASSIGNMENT: LazyLock<Regex> =
    LazyLock::new(|| compiled(r"(?m-u)^\s*(?:(?:export|local|readonly|declare)\s+(?:-\w+\s+)*)?([A-Z][A-Z0-9_]*)="));
/// A well-known program where a command begins, or the interpreter of a first line.
static PROGRAM: LazyLock<Regex> = LazyLock::new(|| {
    let known = "curl|wget|nc|ncat|socat|telnet|ssh|scp|sftp|rsync|sudo|docker|podman|kubectl|helm|terraform|aws|gcloud|az|gh|glab|git|\
                 npm|npx|pnpm|yarn|pip3?|pipx|uvx?|poetry|cargo|go|brew|apt|apt-get|python[23]?|node|deno|bun|ruby|perl|php|\
                 osascript|security|launchctl|crontab|systemctl|openssl|gpg|ffmpeg|jq|yq|psql|mysql|sqlite3|redis-cli|op";
    compiled(&format!(
        r"(?-u)(?:^#!\s*\S*/(?:env\s+(?:-\S+\s+)*)?([a-z][\w.+-]*)|(?:^|[;&|(`]|\b(?:sudo|then|do|else|exec|time|xargs)\s)\s*(?:[A-Z_]+=\S*\s+)*({known})(?:\s|$))"
    ))
});

/// What is collected, file by file.
pub struct Uses<'d> {
    declared: &'d MainFile,
    scripts: Vec<String>,
    hosts: BTreeSet<String>,
    env: BTreeSet<String>,
    bins: BTreeSet<String>,
    /// Variables that the file itself sets.
    assigned: BTreeSet<String>,
}

impl<'d> Uses<'d> {
    /// Nothing yet, beside what is `declared`.
    pub fn of(declared: &'d MainFile) -> Self {
        let (hosts, env, bins, assigned) = Default::default();
        Self { declared, scripts: Vec::new(), hosts, env, bins, assigned }
    }

    /// Goes on with the next file.
    pub fn begin(&mut self, file: &BundledFile, text: Option<&SkillText<'_>>, is_main: bool) {
        let is_called = is_main && self.declared.is_script;
        if is_called || file.mode == SkillFileMode::Executable || text.is_some_and(SkillText::is_script) {
            self.scripts.push(file.path.clone());
        }
        let assigned =
            text.map(|text| ASSIGNMENT.captures_iter(text.text.as_bytes()).filter_map(|found| word(&found, 1)));
        self.assigned = assigned.into_iter().flatten().collect();
    }

    /// Takes in a piece of a line. Returns where a secret is read that the skill does not declare, in bytes.
    pub fn look(&mut self, piece: &str, line: &TextLine<'_>) -> Option<usize> {
        let bytes = piece.as_bytes();
        let names_downloader = !line.is_code && ["curl ", "wget "].iter().any(|word| piece.contains(word));
        if line.is_code && !line.is_comment() || names_downloader {
            let hosts = HOST.captures_iter(bytes).filter_map(|found| word(&found, 1));
            insert(&mut self.hosts, hosts.map(|host| host.trim_end_matches('.').to_ascii_lowercase()));
        }
        if !line.is_code {
            return None;
        }
        let programs = PROGRAM.captures_iter(bytes).filter_map(|found| word(&found, 1).or_else(|| word(&found, 2)));
        if line.is_shell || piece.starts_with("#!") {
            insert(&mut self.bins, programs);
        }
        let mut read = Vec::new();
        for found in VARIABLE.captures_iter(bytes) {
            let name = (1..found.len()).find_map(|group| word(&found, group));
            read.extend(name.zip(found.get(0).map(|whole| whole.start())));
        }
        if line.is_shell {
            for found in SHELL_SECRET.captures_iter(bytes) {
                let name = word(&found, 1).filter(|name| is_secret(name) && !self.assigned.contains(name));
                read.extend(name.zip(found.get(0).map(|whole| whole.start())));
            }
        }
        read.retain(|(name, _)| !COMMON_VARIABLES.contains(&name.as_str()) && !self.declared.env.contains(name));
        let secret = read.iter().find(|(name, _)| is_secret(name)).map(|(_, at)| piece.floor_char_boundary(*at));
        insert(&mut self.env, read.into_iter().map(|(name, _)| name));
        secret
    }

    /// What was found, beside what is declared.
    pub fn permissions(self, is_online: bool) -> SkillPermissions {
        let Self { declared, scripts, hosts, env, mut bins, .. } = self;
        bins.retain(|bin| !declared.bins.contains(bin) && !matches!(bin.as_str(), "sh" | "bash"));
        SkillPermissions {
            scripts,
            network: SkillNetwork { used: is_online || !hosts.is_empty(), hosts: hosts.into_iter().collect() },
            env: declared.env.clone(),
            bins: declared.bins.clone(),
            tools: declared.tools.clone(),
            undeclared_env: env.into_iter().collect(),
            undeclared_bins: bins.into_iter().collect(),
        }
    }
}

/// Whether a variable's name says that its value is to be kept.
fn is_secret(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    let ends = ["KEY", "TOKEN", "SECRET", "PASSWORD", "PASSWD", "CREDENTIALS", "CREDENTIAL", "AUTH", "PAT"];
    let is_key =
        |end: &&str| name == **end || name.ends_with(&format!("_{end}")) || name.ends_with(&format!("API{end}"));
    ends.iter().any(is_key) || name.contains("_SECRET_") || name.contains("PRIVATE_KEY")
}

fn insert(set: &mut BTreeSet<String>, words: impl Iterator<Item = String>) {
    for word in words {
        if set.len() < MAX_LISTED {
            set.insert(protocol::text::head(&word, 200).to_owned());
        }
    }
}

fn word(found: &regex::bytes::Captures<'_>, group: usize) -> Option<String> {
    found.get(group).and_then(|word| std::str::from_utf8(word.as_bytes()).ok()).map(str::to_owned)
}

fn compiled(pattern: &str) -> Regex {
    Regex::new(pattern).expect("a pattern is sound")
}
