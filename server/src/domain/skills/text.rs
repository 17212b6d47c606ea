//! The files of a skill as text: which of them are scripts, and which lines of them could be run.

use protocol::limits::MAX_TEXT_FILE_BYTES;

/// A longer line is looked at in pieces of this many bytes.
const PIECE_BYTES: usize = 2_000;
/// Pieces share this much, so that nothing is cut in two.
const SHARED_BYTES: usize = 200;
/// Ends of the names of scripts.
const SCRIPT_ENDS: &[&str] = &[
    "awk", "bash", "bat", "cjs", "cmd", "exs", "fish", "go", "htm", "html", "js", "jsx", "ksh", "lua", "mjs", "mts",
    "php", "pl", "ps1", "psm1", "py", "pyw", "r", "rb", "rs", "scpt", "svelte", "swift", "tcl", "ts", "tsx", "vue",
    "zsh", "sh",
];
/// Those among them that a shell reads.
const SHELL_ENDS: &[&str] = &["bash", "fish", "ksh", "zsh", "sh"];
/// Names of files that programs run by themselves.
const SCRIPT_NAMES: &[&str] =
    &[".envrc", "containerfile", "dockerfile", "gemfile", "justfile", "makefile", "procfile", "rakefile"];
/// Ends of the names of texts for people and models.
const PROSE_ENDS: &[&str] = &["adoc", "markdown", "md", "mdx", "rst", "txt"];
/// Words behind a fence whose block a shell would read.
const SHELL_FENCES: &[&str] = &["", "bash", "console", "sh", "shell", "terminal", "zsh"];

/// What kind of text it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nature {
    /// `is_shell`: it is read by a shell.
    Script {
        is_shell: bool,
    },
    /// Its fenced blocks are code.
    Prose,
    /// All that follows the front matter is a script.
    ScriptBelowFrontMatter,
    Data,
}

/// The text of one file.
#[derive(Clone, Copy, Debug)]
pub struct SkillText<'t> {
    pub text: &'t str,
    nature: Nature,
}

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TextLine<'t> {
    /// From 1.
    pub number: u32,
    pub text: &'t str,
    /// Whether it could be run.
    pub is_code: bool,
    /// Whether a shell would run it.
    pub is_shell: bool,
}

/// The file at `path` as text, of which everything may be a script; `None` if it is binary.
pub fn read<'t>(path: &str, bytes: &'t [u8], is_script_throughout: bool) -> Option<SkillText<'t>> {
    let text = whole(bytes)?;
    let nature = if is_script_throughout { Nature::ScriptBelowFrontMatter } else { nature(path, text) };
    Some(SkillText { text, nature })
}

/// The text of a file, if it is one.
pub fn whole(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// The text that can be compared with another one, if it is one.
pub fn shown(bytes: &[u8]) -> Option<&str> {
    whole(bytes).filter(|text| text.len() as u64 <= MAX_TEXT_FILE_BYTES)
}

/// The word behind a fence of Markdown, if the line is one.
pub fn fence(line: &str) -> Option<&str> {
    let text = line.trim_start();
    let mark = text.chars().next().filter(|c| matches!(c, '`' | '~') && text.len() + 4 > line.len())?;
    let rest = text.trim_start_matches(mark);
    let is_fence = text.len() - rest.len() >= 3 && !(mark == '`' && rest.contains('`'));
    is_fence.then(|| rest.split(|c: char| c.is_whitespace() || c == '{').find(|word| !word.is_empty()).unwrap_or(""))
}

fn nature(path: &str, text: &str) -> Nature {
    let name = path.rsplit('/').next().unwrap_or(path).to_ascii_lowercase();
    let end = name.rsplit_once('.').map_or("", |(_, end)| end);
    if let Some(program) = text.strip_prefix("#!").map(|rest| rest.lines().next().unwrap_or_default()) {
        return Nature::Script { is_shell: program.contains("sh") };
    }
    if SCRIPT_ENDS.contains(&end) {
        return Nature::Script { is_shell: SHELL_ENDS.contains(&end) };
    }
    if SCRIPT_NAMES.contains(&name.as_str()) {
        return Nature::Script { is_shell: true };
    }
    if PROSE_ENDS.contains(&end) { Nature::Prose } else { Nature::Data }
}

impl<'t> SkillText<'t> {
    /// Whether the file is a script.
    pub fn is_script(&self) -> bool {
        matches!(self.nature, Nature::Script { .. })
    }

    /// Its lines.
    pub fn lines(self) -> impl Iterator<Item = TextLine<'t>> {
        let mut state = LineState { nature: self.nature, fences: 0, open: None };
        self.text.lines().zip(1_u32..).map(move |(text, number)| {
            let (is_code, is_shell) = state.look(text);
            TextLine { number, text, is_code, is_shell }
        })
    }
}

/// What is known of the lines before.
struct LineState {
    nature: Nature,
    /// Lines `---`, of which two enclose the front matter.
    fences: u32,
    /// The mark of the open block, its length, and whether a shell would run it.
    open: Option<(char, usize, bool)>,
}

impl LineState {
    fn look(&mut self, line: &str) -> (bool, bool) {
        match self.nature {
            Nature::Script { is_shell } => (true, is_shell),
            Nature::Data => (false, false),
            Nature::ScriptBelowFrontMatter => {
                let is_code = self.fences >= 2;
                self.fences += u32::from(line.trim_end() == "---");
                (is_code, is_code)
            }
            Nature::Prose => self.look_at_prose(line),
        }
    }

    fn look_at_prose(&mut self, line: &str) -> (bool, bool) {
        let text = line.trim_start();
        let mark = text.chars().next().unwrap_or(' ');
        let length = text.len() - text.trim_start_matches(mark).len();
        match (self.open, fence(line)) {
            (Some((open, least, _)), Some("")) if open == mark && length >= least => self.open = None,
            (Some((.., is_shell)), _) => return (true, is_shell),
            (None, Some(word)) => {
                self.open = Some((mark, length, SHELL_FENCES.contains(&word.to_ascii_lowercase().as_str())));
            }
            (None, None) => {}
        }
        (false, false)
    }
}

impl<'t> TextLine<'t> {
    /// The line in pieces of bounded length.
    pub fn pieces(&self) -> impl Iterator<Item = &'t str> + use<'t> {
        let mut rest = Some(self.text);
        std::iter::from_fn(move || {
            let text = rest.take()?;
            let piece = protocol::text::head(text, PIECE_BYTES);
            if piece.len() < text.len() {
                let next = text.ceil_char_boundary(piece.len().saturating_sub(SHARED_BYTES));
                rest = text.get(next.max(1)..);
            }
            Some(piece)
        })
    }

    /// Whether nothing of it would be run.
    pub fn is_comment(&self) -> bool {
        let text = self.text.trim_start();
        !text.starts_with("#!")
            && ["#", "//", "/*", "* ", "--", "<!--", "REM ", "rem "].iter().any(|mark| text.starts_with(mark))
    }
}
