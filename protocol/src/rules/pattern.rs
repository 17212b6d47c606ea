//! Patterns of rules: the words of a command, or the path of a file.

use std::{collections::BTreeMap, path::Path};

use globset::{GlobBuilder, GlobSet};

use super::{
    command::{CommandLine, Word},
    programs::{base, git_option_words},
};

/// Places that options are left out to, before more of them count as any.
const MAX_PLACES: usize = 32;

/// A word of a pattern for commands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum PatternWord {
    Is(String),
    /// `*`: any one word.
    One,
    /// `**`, the last: any number of words.
    Rest,
}

/// Whether a call is meant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Meant {
    No,
    /// It cannot be told.
    Maybe,
    Yes,
}

/// A pattern for files.
#[derive(Clone, Debug)]
pub(super) struct PathPattern {
    glob: GlobSet,
    is_absolute: bool,
    is_everything: bool,
}

/// The words of a pattern; `Err` says what is wrong.
pub(super) fn words(pattern: &str) -> Result<Vec<PatternWord>, &'static str> {
    let line = CommandLine::read(pattern);
    let words = line.pattern().ok_or("a pattern is the words of one simple command")?;
    let words = words.iter().map(|word| match (word.is_glob, word.text.as_str()) {
        (true, "*") => Ok(PatternWord::One),
        (true, "**") => Ok(PatternWord::Rest),
        (true, _) => Err("* stands for a whole word; quote it to mean itself"),
        (false, text) => Ok(PatternWord::Is(text.to_owned())),
    });
    let words: Vec<_> = words.collect::<Result<_, _>>()?;
    if words.iter().rev().skip(1).any(|word| *word == PatternWord::Rest) {
        return Err("** stands at the end only");
    }
    Ok(words)
}

/// Whether these are exactly the words of the pattern, none of which stands for more than it shows.
pub(super) fn is_like(pattern: &[PatternWord], words: &[Word]) -> bool {
    let (fixed, has_rest) = match pattern.split_last() {
        Some((PatternWord::Rest, fixed)) => (fixed, true),
        _ => (pattern, false),
    };
    let Some((own, rest)) = words.split_at_checked(fixed.len()) else { return false };
    let is_meant = |(one, word): (&PatternWord, &Word)| {
        !word.hides_text() && (*one == PatternWord::One || *one == PatternWord::Is(word.text.clone()))
    };
    (has_rest || rest.is_empty()) && fixed.iter().zip(own).all(is_meant) && rest.iter().all(|word| !word.is_expanded)
}

/// Whether the words begin as the pattern does: what follows does not make a denied command another one, and neither do options
/// before what it names, each with a word that may belong to it.
pub(super) fn begins_like(pattern: &[PatternWord], words: &[Word]) -> Meant {
    let (Some((name, mut arguments)), Some((program, words))) = (pattern.split_first(), words.split_first()) else {
        return Meant::No;
    };
    if let PatternWord::Is(name) = name {
        // Of a program whose name is not written out, nothing is known: see `CommandLine::hides_a_name`.
        let (name, program) = (base(name), if program.hides_text() { "" } else { base(&program.text) });
        match (program.strip_prefix("git-"), arguments.split_first()) {
            (Some(command), Some((PatternWord::Is(wanted), rest))) if name == "git" && command == wanted => {
                arguments = rest
            }
            _ if name != program => return Meant::No,
            _ => {}
        }
    }
    let is_git = base(&program.text) == "git";
    // Where the arguments found so far may end, and whether surely.
    let mut ends = BTreeMap::from([(0, Meant::Yes)]);
    for one in arguments {
        match one {
            PatternWord::Rest => break,
            PatternWord::Is(option) if option.starts_with('-') => {
                let found = has_option(option, words);
                ends.values_mut().for_each(|meant| *meant = (*meant).min(found));
                ends.retain(|_, meant| *meant > Meant::No);
            }
            PatternWord::Is(_) | PatternWord::One => {
                let mut next = BTreeMap::new();
                for (at, meant) in past_options(&ends, words, is_git) {
                    let Some(word) = words.get(at) else { continue };
                    let is_it = *one == PatternWord::One || *one == PatternWord::Is(word.text.clone());
                    let meant = if is_it && !word.hides_text() || *one == PatternWord::One {
                        meant
                    } else if word.hides_text() {
                        Meant::Maybe
                    } else {
                        continue;
                    };
                    let known = next.entry(at + 1).or_insert(meant);
                    *known = (*known).max(meant);
                }
                ends = next;
            }
        }
    }
    ends.into_values().max().unwrap_or(Meant::No)
}

/// The places that can be reached from these by leaving out options, in their order.
fn past_options(ends: &BTreeMap<usize, Meant>, words: &[Word], is_git: bool) -> BTreeMap<usize, Meant> {
    let mut reached = ends.clone();
    let mut left: Vec<(usize, Meant)> = ends.iter().map(|(at, meant)| (*at, *meant)).collect();
    while let Some((at, meant)) = left.pop() {
        let Some(text) = words.get(at).map(|word| word.text.as_str()) else { continue };
        let behind = match git_option_words(text) {
            Some(taken) if is_git => vec![at + taken],
            Some(_) => vec![at + 1, at + 2],
            None if text.starts_with('+') => vec![at + 1],
            None => continue,
        };
        // Of more places than anybody writes, the others are not told apart.
        let meant = if reached.len() < MAX_PLACES { meant } else { Meant::Maybe };
        if reached.len() > 2 * MAX_PLACES {
            break;
        }
        for next in behind {
            if reached.insert(next, meant).is_none() {
                left.push((next, meant));
            }
        }
    }
    reached
}

/// Whether an option is among the words, wherever: short ones in whatever bundles.
fn has_option(option: &str, words: &[Word]) -> Meant {
    let is_short = |text: &str| text.len() > 1 && text.starts_with('-') && !text.starts_with("--");
    let found = if is_short(option) {
        let given: String = words.iter().map(|word| word.text.as_str()).filter(|text| is_short(text)).collect();
        words.iter().any(|word| word.text == option) || option.chars().skip(1).all(|letter| given.contains(letter))
    } else {
        words.iter().any(|word| word.text == option || word.text.split('=').next() == Some(option))
    };
    match found {
        true => Meant::Yes,
        false if words.iter().any(Word::hides_text) => Meant::Maybe,
        false => Meant::No,
    }
}

impl PathPattern {
    /// `*` within a name, `**` across folders, `{a,b}` either. It lies beneath a space unless it begins with `/`.
    pub fn read(pattern: &str) -> Result<Self, &'static str> {
        let path = pattern.strip_prefix('/').unwrap_or(pattern);
        if path.split('/').any(|name| matches!(name, "" | "." | "..")) {
            return Err("a path is made of names with one / between them");
        }
        if pattern.starts_with(['~', '{']) {
            return Err("a path begins with a name, with ** or with /");
        }
        let mut before = ' ';
        for c in pattern.chars() {
            if matches!(c, '[' | '?') && before != '\\' {
                return Err("of patterns a path has *, ** and {a,b}");
            }
            before = c;
        }
        let glob = GlobBuilder::new(pattern).literal_separator(true).backslash_escape(true).build();
        let glob = glob.and_then(|glob| GlobSet::builder().add(glob).build()).map_err(|_| "the path is no pattern")?;
        Ok(Self { glob, is_absolute: pattern.starts_with('/'), is_everything: matches!(path, "**" | "**/*") })
    }

    /// Whether it stands for every file.
    pub fn is_everything(&self) -> bool {
        self.is_everything
    }

    /// Whether the file, or a folder that it lies in, may be meant.
    pub fn may_match(&self, inside: Option<&str>, absolute: &str) -> bool {
        let folders = inside.into_iter().chain([absolute]).flat_map(|path| Path::new(path).ancestors());
        folders.into_iter().any(|path| {
            let path = path.to_string_lossy();
            !path.is_empty() && (self.glob.is_match(path.as_ref()) || self.glob.is_match(format!("{path}/")))
        })
    }

    /// Whether just this file is meant.
    pub fn surely_matches(&self, inside: Option<&str>, absolute: &str) -> bool {
        let path = if self.is_absolute { Some(absolute) } else { inside };
        path.is_some_and(|path| {
            let names = path.strip_prefix('/').unwrap_or(path);
            !names.split('/').any(|name| matches!(name, "" | "." | "..")) && self.glob.is_match(path)
        })
    }
}
