//! The ledger of spawned commands, kept outside of the product: each command writes a line when it begins.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

/// A file that commands append to.
#[derive(Clone, Debug)]
pub struct Spawns {
    file: PathBuf,
}

/// A command that began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spawn {
    pub task: String,
    pub attempt: u32,
    /// Nanoseconds since the epoch.
    pub at: u128,
}

impl Spawns {
    /// A ledger in `folder`, which commands must be able to write to.
    pub fn in_folder(folder: &Path) -> Self {
        Self { file: folder.join("spawns") }
    }

    /// A line of shell that writes itself down, then does `command`. One write: lines never mix.
    pub fn command(&self, command: &str) -> String {
        let file = self.file.display();
        format!(
            "printf '%s %s %s\\n' \"$OPENVIBER_TASK_ID\" \"$OPENVIBER_ATTEMPT\" $(date +%s%N) >>'{file}'; {command}"
        )
    }

    /// What began so far, oldest first.
    pub fn all(&self) -> Vec<Spawn> {
        let text = std::fs::read_to_string(&self.file).unwrap_or_default();
        text.lines().map(|line| read(line).unwrap_or_else(|| panic!("the ledger has an odd line: {line:?}"))).collect()
    }

    /// How many commands of `task` began.
    pub fn begun(&self, task: &str) -> usize {
        self.all().iter().filter(|spawn| spawn.task == task).count()
    }

    /// Panics when an attempt was begun twice (each attempt's goal starts one command of this ledger).
    #[track_caller]
    pub fn at_most_once(&self) {
        let mut counts: BTreeMap<(String, u32), Vec<Spawn>> = BTreeMap::new();
        for spawn in self.all() {
            counts.entry((spawn.task.clone(), spawn.attempt)).or_default().push(spawn);
        }
        for (attempt, spawns) in counts {
            assert_eq!(spawns.len(), 1, "{attempt:?} was begun more than once: {spawns:?}");
        }
    }
}

/// The living processes of `task`'s commands by the machine's own numbers, without their supervisors: a command may count
/// process ids of its own.
pub fn living(task: &str) -> Vec<u32> {
    processes(task, false)
}

/// The supervisors of `task`'s commands, the outer one first.
pub fn supervisors(task: &str) -> Vec<rustix::process::Pid> {
    processes(task, true).into_iter().filter_map(|pid| rustix::process::Pid::from_raw(pid as i32)).collect()
}

fn processes(task: &str, supervisors: bool) -> Vec<u32> {
    let mark = format!("OPENVIBER_TASK_ID={task}");
    let entries = std::fs::read_dir("/proc").expect("a Linux machine").flatten();
    let mut found: Vec<u32> = entries
        .filter(|entry| {
            let words = |file: &str| std::fs::read(entry.path().join(file)).unwrap_or_default();
            let has = |text: &[u8], word: &str| text.split(|byte| *byte == 0).any(|one| one == word.as_bytes());
            has(&words("environ"), &mark) && has(&words("cmdline"), "hold") == supervisors
        })
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect();
    found.sort_unstable();
    found
}

fn read(line: &str) -> Option<Spawn> {
    let mut words = line.split(' ');
    let spawn = Spawn {
        task: words.next().filter(|task| task.starts_with("task_"))?.to_owned(),
        attempt: words.next()?.parse().ok()?,
        at: words.next()?.parse().ok()?,
    };
    words.next().is_none().then_some(spawn)
}
