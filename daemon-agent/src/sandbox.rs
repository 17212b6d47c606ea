//! What a command may read and write, enforced by the kernel (Landlock).
//!
//! Owns the rule; `hold` applies it to what it starts. Never applied to the daemon itself.

/// Whether commands are confined on this machine, as told to the Board in `hello`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Confinement {
    Landlock,
    /// The kernel has no Landlock: commands may do what their user may do.
    Unconfined,
}

impl Confinement {
    /// The word among the capabilities of `hello`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Unconfined => "unconfined",
        }
    }
}

/// What this kernel offers.
#[cfg(target_os = "linux")]
pub fn status() -> Confinement {
    use landlock::{ABI, Access, AccessFs, CompatLevel, Compatible, Ruleset, RulesetAttr};
    let required = Ruleset::default().set_compatibility(CompatLevel::HardRequirement);
    match required.handle_access(AccessFs::from_all(ABI::V1)) {
        Ok(_) => Confinement::Landlock,
        Err(_) => Confinement::Unconfined,
    }
}

/// Other systems have nothing like it.
#[cfg(not(target_os = "linux"))]
pub fn status() -> Confinement {
    Confinement::Unconfined
}
