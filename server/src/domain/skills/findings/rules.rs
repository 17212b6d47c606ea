//! What lines are looked through for, as patterns that match in linear time. They look at bytes, without regard to case.

use std::sync::LazyLock;

use regex::bytes::{Regex, RegexSet};

use super::FindingKind;
use crate::domain::skills::text::TextLine;

/// Which lines a rule is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineScope {
    Any,
    /// Lines that could be run and are no comment.
    Statement,
    /// Lines that also say something of writing.
    Writing,
}

/// All rules, compiled once.
pub static RULES: LazyLock<Rules> = LazyLock::new(|| {
    let joined = |patterns: &[&str]| format!("(?i-u)(?:{})", patterns.join("|"));
    let texts: Vec<String> = TABLE.iter().map(|(.., patterns)| joined(patterns)).collect();
    let compiled = texts.iter().zip(TABLE).map(|(text, (kind, scope, _))| {
        let pattern = Regex::new(text).expect("a pattern is sound");
        Rule { kind: *kind, scope: *scope, pattern }
    });
    Rules {
        all: RegexSet::new(&texts).expect("patterns are sound"),
        rules: compiled.collect(),
        writing: Regex::new(&joined(WRITING)).expect("a pattern is sound"),
    }
});

/// One row of the table, compiled.
struct Rule {
    kind: FindingKind,
    scope: LineScope,
    pattern: Regex,
}

/// The table, compiled.
pub struct Rules {
    /// Every rule at once: most lines match none.
    all: RegexSet,
    rules: Vec<Rule>,
    writing: Regex,
}

impl Rules {
    /// What a piece of a line shows, and where in it, in bytes.
    pub fn find<'r>(
        &'r self,
        piece: &'r str,
        line: &'r TextLine<'_>,
    ) -> impl Iterator<Item = (FindingKind, usize)> + 'r {
        let hits = self.all.matches(piece.as_bytes()).into_iter().collect::<Vec<_>>();
        hits.into_iter().filter_map(move |hit| {
            let rule = self.rules.get(hit)?;
            let is_for = match rule.scope {
                LineScope::Any => true,
                LineScope::Statement => line.is_code && !line.is_comment(),
                LineScope::Writing => self.writing.is_match(piece.as_bytes()),
            };
            let found = rule.pattern.find(piece.as_bytes()).filter(|_| is_for)?;
            Some((rule.kind, piece.floor_char_boundary(found.start())))
        })
    }
}

/// The rules: what a match is a hint of, in which lines, and the patterns.
const TABLE: &[(FindingKind, LineScope, &[&str])] = &[
    (FindingKind::PipeToShell, LineScope::Any, PIPE_TO_SHELL),
    (FindingKind::Hiding, LineScope::Any, HIDING),
    (FindingKind::Encoded, LineScope::Any, ENCODED),
    (FindingKind::Encoded, LineScope::Statement, &[r"(?:^|[^.\w])eval\s*\(", r#"(?:^|[;&|]\s*|\s)eval\s+["'$`]"#]),
    (FindingKind::Secrets, LineScope::Any, SECRETS),
    (FindingKind::Secrets, LineScope::Statement, WHOLE_ENVIRONMENT),
    (FindingKind::AgentFiles, LineScope::Writing, AGENT_FILES),
    (FindingKind::AgentFiles, LineScope::Any, SCHEDULES),
    (FindingKind::Privilege, LineScope::Any, PRIVILEGE),
    (
        FindingKind::Network,
        LineScope::Any,
        &[r#"\b(?:curl|wget)\s+(?:-\S+\s+)*["'<]?(?:https?://|\$)"#, r"`\s*(?:curl|wget)\s"],
    ),
    (FindingKind::Network, LineScope::Statement, NETWORK),
];

const PIPE_TO_SHELL: &[&str] = &[
    // A download into an interpreter.
    r"\b(?:curl|wget|fetch|aria2c|iwr|irm|invoke-webrequest|invoke-restmethod)\b.*\|\s*(?:(?:sudo|doas|env|command|nohup)\s+(?:-\S+\s+|\w+=\S*\s+)*)*(?:/\S*/)?(?:(?:ba|z|da|k|fi|a|c|tc)?sh|python[0-9.]*|node|deno|bun|perl|ruby|php|lua|osascript|pwsh|powershell|iex|invoke-expression)(?:[^\w.-]|$)",
    // The same in the place of a file or an argument.
    r"(?:\b(?:ba|z|da|k)?sh|\bsource|(?:^|\s)\.|\bpython[0-9.]*|\bnode)\s+(?:-\S+\s+)*<\(\s*(?:curl|wget)\b",
    r#"(?:\beval|\b(?:ba|z|da|k)?sh\s+-\w*c|\bsource|\bpython[0-9.]*\s+-c)\s+["']?(?:\$\(|`)\s*(?:curl|wget)\b"#,
    // A download that is run in the next command.
    r"\b(?:curl|wget)\b.*(?:&&|;)\s*(?:sudo\s+)?(?:chmod\s+(?:\+x|[ugoa]\+x|0?7[0-7]{2})|(?:ba|z|da|k)?sh\s+[\w./$]|python[0-9.]*\s+[\w./$]|\./)",
    r"\b(?:iex|invoke-expression)\b.*\b(?:iwr|irm|invoke-webrequest|invoke-restmethod|downloadstring|curl|wget)\b",
    r"\b(?:exec|eval)\s*\(.*\b(?:requests\.get|urlopen|urllib|httpx\.get|fetch)\b",
];

const HIDING: &[&str] = &[
    r"\b(?:do\s+not|don[^\w\s]{0,3}t|never|must\s+not|should\s+not|without|avoid|refrain\s+from)\s+(?:ever\s+)?(?:tell|inform|notify|mention|reveal|alert|disclos|report|warn)\w*\b.{0,40}\b(?:users?|humans?|persons?|people|operators?|owners?|anyone|anybody|them|him|her)\b",
    r"\b(?:do\s+not|don[^\w\s]{0,3}t|never|must\s+not)\s+(?:ever\s+)?(?:show|mention|reveal|disclose|log|record|display)\s+(?:this|these|that|it|any\s+of)\b",
    r"\b(?:hide|conceal|keep)\b.{0,40}\bfrom\s+(?:the\s+|your\s+|any\s+)?(?:users?|humans?|persons?|people|operators?|owners?|reviewers?)\b",
    r"\b(?:silently|secretly|covertly|stealthily|surreptitiously)\b",
    r"\b(?:ignore|disregard|forget|override|bypass)\s+(?:all\s+|any\s+|every\s+)?(?:of\s+)?(?:the\s+|your\s+|these\s+|those\s+|my\s+|its\s+)?(?:previous|prior|above|earlier|preceding|former|other|existing|system|safety|original)\s+(?:\w+\s+)?(?:instruction|prompt|rule|message|order|direction|guideline|polic|restriction)",
    r"\byou\s+are\s+(?:now\s+)?(?:no\s+longer\s+bound|unrestricted|jailbroken)\b",
    // A shell that remembers nothing.
    r"\b(?:unset\s+HISTFILE|HISTFILE=/dev/null|HISTSIZE=0|history\s+-c|set\s+\+o\s+history)\b",
];

const ENCODED: &[&str] = &[
    r"\bbase(?:64|32)\s+(?:-\w+\s+)*(?:-d|-D|--decode)\b",
    r"\bopenssl\s+(?:enc|base64)\b.*\s-d\b",
    r"\bxxd\s+(?:-\w+\s+)*-r",
    r"\batob\s*\(",
    r"\b(?:b64decode|b32decode|a85decode|unhexlify|frombase64string)\b",
    r"\bbytes\.fromhex\b",
    r#"\bBuffer\.from\s*\([^)]*["'](?:base64|hex)["']"#,
    r"\b(?:exec|eval|execSync|Function|compile|loads)\s*\(.*\b(?:decode|decompress|fromCharCode|fromhex|unpack)\b",
    r"\bString\.fromCharCode\s*\((?:\s*(?:0x)?[0-9a-f]+\s*,){8}",
    r"(?:\\x[0-9a-f]{2}){12}",
    r"(?:\\u00[0-9a-f]{2}){12}",
    r"\b(?:powershell|pwsh)\b.*\s-e(?:c|nc|ncodedcommand)?\s+[a-z0-9+/=]{16}",
    r"\bmarshal\.loads\b|\bpickle\.loads\b",
];

const SECRETS: &[&str] = &[
    r#"(?:^|[\s"'`=(/~:,])\.(?:ssh|aws|gnupg|kube)(?:[/\s"'`),;.:]|$)"#,
    r#"(?:^|[\s"'`=(/~:,])\.(?:netrc|pgpass|npmrc|pypirc|git-credentials|htpasswd)\b"#,
    r#"(?:^|[\s"'`=(/~:,<])\.env(?:[\s"'`),;:]|\.(?:local|production|prod|dev|development)\b|$)"#,
    r"\.config/(?:gh|gcloud|op|rclone)\b|\.docker/config\.json|\.azure/",
    r"\bid_(?:rsa|ed25519|ecdsa|dsa)\b",
    r"/etc/(?:shadow|sudoers|gshadow)\b",
    r"\bsecurity\s+(?:find-(?:generic|internet)-password|dump-keychain|export)\b",
    r"\bkeychains?\b|\bsecret-tool\s+lookup\b|\bkeyring\.get_password\b|\bgnome-keyring\b|\bpass\s+show\s",
    r"\bgpg2?\s+(?:-\S+\s+)*(?:-d\b|--decrypt|--export-secret)",
    r"\bLogin Data\b|\bcookies\.sqlite\b|\bkey4\.db\b|\bwallet\.dat\b",
    r"\b169\.254\.169\.254\b|\bmetadata\.google\.internal\b",
    r"\bproviders?[-_]keys?\.ya?ml\b|\.openviber/(?:state|\.env)",
];

const WHOLE_ENVIRONMENT: &[&str] = &[
    r"(?:^|[;&|(`]\s*)(?:printenv|env|export\s+-p)\s*(?:$|[|>;)])",
    r"\b(?:dict|str|json\.dumps|list|repr|print)\s*\(\s*(?:dict\s*\(\s*)?os\.environ\b|\bos\.environ\.(?:items|copy|values)\b",
    r"\bJSON\.stringify\s*\(\s*process\.env\b|\bObject\.(?:entries|keys|values)\s*\(\s*process\.env\b",
    r"/proc/(?:self|[0-9]+|\$\S+)/environ\b",
];

const AGENT_FILES: &[&str] = &[
    r"\b(?:AGENTS|CLAUDE|MEMORY|GEMINI|SOUL|HEARTBEAT|copilot-instructions)\.md\b",
    r#"(?:^|[\s"'`=(/~])\.(?:openviber|claude|agents|codex|cursor|gemini|openclaw|clawdbot)/"#,
    r"\.cursorrules\b|\.windsurfrules\b",
    r"\bskills/[\w.*$-]+/SKILL\.md\b",
    r#"\.(?:bashrc|bash_profile|bash_login|zshrc|zprofile|zshenv|profile)(?:[\s"'`),;:.]|$)|\bconfig\.fish\b"#,
    r"/etc/(?:cron|profile|rc\.local|systemd|init\.d|ld\.so\.preload)",
    r"\bauthorized_keys\b|\.ssh/config\b|\.gitconfig\b|\.git/hooks\b",
    r"\.config/(?:systemd|autostart)\b|\bLaunch(?:Agents|Daemons)\b",
];

/// What beside a file's name says that it is written.
const WRITING: &[&str] = &[
    r"\b(?:write|append|add|update|edit|insert|create|overwrite|modify|replace|save|put|store|record|install|change|extend|patch)(?:s|d|ing|e)?\b",
    r"\b(?:echo|printf|cat|tee|cp|mv|ln|touch|install|rsync|sed\s+-i|dd)\b",
    r">",
    r#"\b(?:writeFile|appendFile|createWriteStream|write_text|open\s*\([^)]*["'][wax])"#,
];

const SCHEDULES: &[&str] = &[
    r"\bcrontab\s+(?:-u\s+\S+\s+)?(?:-(?:\s|$)|-e\b|[\w./$<])",
    r"\|\s*crontab\b",
    r"\blaunchctl\s+(?:load|bootstrap|enable|submit)\b",
    r"\bsystemctl\s+(?:--\w+\s+)*(?:enable|link)\b",
    r"\bschtasks\b|\bat\s+(?:now|midnight|noon)\b",
    r"\bgit\s+config\s+--(?:global|system)\b",
];

const PRIVILEGE: &[&str] = &[
    r"\b(?:sudo|doas|pkexec)\s+[-\w./$]",
    r"\bsu\s+(?:-|root\b|-c\b)",
    r"\bchmod\s+(?:-\S+\s+)*(?:0?777|[0-7]?[2467][0-7]{3}|[ugoa]*\+[rwx]*s)\b",
    r"\bset(?:uid|gid|euid|cap)\b|\bNOPASSWD\b|\bsudoers\b",
    r"\s--(?:privileged|no-sandbox|dangerously-[\w-]+|yolo|cap-add)\b",
    r"/var/run/docker\.sock",
    r"\bcsrutil\s+disable\b|\bspctl\s+--master-disable\b|\bsetenforce\s+0\b|\bcom\.apple\.quarantine\b",
    r"\bSet-ExecutionPolicy\b|\brunas\s+/user",
];

const NETWORK: &[&str] = &[
    r"(?:^|[;&|(`$]\s*|\b(?:sudo|then|do|else|exec|time)\s+)(?:curl|wget|nc|ncat|netcat|socat|telnet|ssh|scp|sftp|rsync|ftp|aria2c|xh|httpie|nslookup|dig)\s",
    r"\brequests\.(?:get|post|put|patch|delete|head|request|Session)\b",
    r"\b(?:urllib[23]?|httpx|aiohttp|http\.client|urlopen|ftplib|smtplib|paramiko|websockets?)\b",
    r"\bsocket\.(?:socket|create_connection|connect)\b|^\s*(?:import|from)\s+socket\b",
    r"\b(?:fetch|axios|got|XMLHttpRequest|WebSocket|EventSource)\s*[.(]",
    r#"(?:require\s*\(|from|import)\s*["'](?:node:)?(?:https?|http2|net|tls|dgram|dns|axios|got|undici|node-fetch|ws)["']"#,
    r"/dev/(?:tcp|udp)/",
    r"\bNet::HTTP\b|\bLWP::|\bopen-uri\b|\bHTTP::Tiny\b|\breq[w]est\b|\bnet/http\b",
    r"\b(?:Invoke-WebRequest|Invoke-RestMethod|Net\.WebClient|Start-BitsTransfer)\b",
    r#"\b(?:https?|wss?|ftp|sftp)://[^\s"'<>)]"#,
];
