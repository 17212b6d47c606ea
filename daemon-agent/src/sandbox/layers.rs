//! The layers that confinement is made of, by name.

use std::fmt;

/// What enforces the rules. Each layer is used if it is requested and the kernel supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layers {
    /// User, mount, process and IPC namespaces: the command has its own file tree, processes and devices.
    pub namespaces: bool,
    /// Rules for files, abstract sockets and signals that a process can only tighten.
    pub landlock: bool,
    /// A filter of system calls.
    pub seccomp: bool,
}

impl Default for Layers {
    fn default() -> Self {
        Self { namespaces: true, landlock: true, seccomp: true }
    }
}

impl Layers {
    pub const NONE: Self = Self { namespaces: false, landlock: false, seccomp: false };

    /// Parses comma-separated names, or `none`.
    pub fn parse(text: &str) -> Option<Self> {
        let mut layers = Self::NONE;
        for name in text.split(',').filter(|_| text != "none") {
            match name {
                "namespaces" => layers.namespaces = true,
                "landlock" => layers.landlock = true,
                "seccomp" => layers.seccomp = true,
                _ => return None,
            }
        }
        Some(layers)
    }

    /// The names of the enabled layers.
    pub fn names(self) -> impl Iterator<Item = &'static str> {
        let all = [(self.namespaces, "namespaces"), (self.landlock, "landlock"), (self.seccomp, "seccomp")];
        all.into_iter().filter_map(|(there, name)| there.then_some(name))
    }

    /// The layers that both have.
    pub fn and(self, other: Self) -> Self {
        Self {
            namespaces: self.namespaces && other.namespaces,
            landlock: self.landlock && other.landlock,
            seccomp: self.seccomp && other.seccomp,
        }
    }

    /// Whether files are confined at all.
    pub fn confine(self) -> bool {
        self.namespaces || self.landlock
    }
}

impl fmt::Display for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.names().collect();
        f.write_str(if names.is_empty() { "none".to_owned() } else { names.join(",") }.as_str())
    }
}

/// Which network a command has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// The machine's own, as its user has it.
    #[default]
    Open,
    /// Nothing but a loopback of its own.
    None,
}

impl Network {
    /// The word in `config.yaml`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::None => "none",
        }
    }

    /// The word in `config.yaml` and on the command line.
    pub fn parse(text: &str) -> Option<Self> {
        match text {
            "open" => Some(Self::Open),
            "none" => Some(Self::None),
            _ => None,
        }
    }
}
