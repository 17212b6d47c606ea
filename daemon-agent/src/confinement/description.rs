//! What confinement guarantees on this machine, in words for people: the same for the Board's page, `doctor` and
//! `hello`.

use protocol::{ConfinedState, ConfinedSubject};

use super::ConfinementSupport;
use crate::sandbox::Network;

use ConfinedState::{Kept, Open, Partly};

/// One sentence for each kind of thing that commands could reach.
pub fn subjects(found: ConfinementSupport, network: Network, memory: u64) -> Vec<ConfinedSubject> {
    let subject = |name: &str, (state, sentence): (ConfinedState, String)| ConfinedSubject {
        name: name.to_owned(),
        state,
        sentence,
    };
    vec![
        subject("files", owned(files(found))),
        subject("sockets", owned(sockets(found, network))),
        subject("terminals", owned(terminals(found))),
        subject("processes", owned(processes(found))),
        subject("network", owned(network_of(found, network))),
        subject("memory", of_memory(found, memory)),
    ]
}

fn owned((state, sentence): (ConfinedState, &str)) -> (ConfinedState, String) {
    (state, sentence.to_owned())
}

fn files(found: ConfinementSupport) -> (ConfinedState, &'static str) {
    let layers = found.layers;
    if layers.namespaces {
        (
            Kept,
            "Commands write only to the spaces, the workspace and what was given. The daemon's keys and your secrets \
             are not there for them, and nothing else can be changed, not even its mode or owner.",
        )
    } else if layers.landlock {
        (
            Partly,
            "Commands write only to the spaces, the workspace, /dev/shm and what was given, and read neither the \
             daemon's keys nor your secrets. This kernel lets them change modes, owners and times of your other files, \
             and see the names of all.",
        )
    } else {
        (Open, "Commands read and write whatever this user can, the daemon's keys and your secrets included.")
    }
}

fn sockets(found: ConfinementSupport, network: Network) -> (ConfinedState, &'static str) {
    let abstract_ones = found.scopes || (found.layers.namespaces && network == Network::None);
    match (found.layers.namespaces && found.overlays, found.layers.namespaces, abstract_ones) {
        (true, _, true) => (
            Kept,
            "Commands connect to sockets that were given by name, that they made themselves, or that lie in folders \
             they write to: not to your ssh-agent, tmux, desktop or container engine.",
        ),
        (true, _, false) => (
            Partly,
            "Sockets that are files are kept from commands unless they were given; this kernel does not keep those \
             without a file (abstract ones, such as X11's and some of D-Bus).",
        ),
        (false, true, _) => (
            Partly,
            "Sockets in /run and /tmp, which is nearly all, are kept from commands unless they were given; those in \
             your folders can be reached on this file system.",
        ),
        (false, false, true) if found.sockets => {
            (Kept, "Commands connect to sockets that were given by name, or that lie in folders they write to.")
        }
        (false, false, true) => (
            Partly,
            "Sockets without a file are kept from commands. This kernel lets them connect to those that are files: \
             ssh-agent, tmux, a container engine, and so act as you.",
        ),
        (false, false, false) => {
            (Open, "Commands connect to every socket of this user: ssh-agent, tmux, a container engine, the desktop.")
        }
    }
}

fn terminals(found: ConfinementSupport) -> (ConfinedState, &'static str) {
    if found.layers.namespaces {
        (Kept, "Commands have terminals of their own; yours are not visible to them.")
    } else if found.layers.landlock {
        (Partly, "Commands cannot open your terminals, and cannot create terminals of their own.")
    } else {
        (Open, "Commands can read from and write to your other terminals.")
    }
}

fn processes(found: ConfinementSupport) -> (ConfinedState, &'static str) {
    let layers = found.layers;
    if layers.namespaces && !layers.seccomp {
        (
            Partly,
            "Commands see, signal and trace only what they started themselves, and all that they leave behind is ended. \
             Without a filter of system calls they can use your keyrings in the kernel.",
        )
    } else if layers.namespaces {
        (
            Kept,
            "Commands see, signal and trace only what they started themselves; shared memory, message queues and \
             keyrings of others are out of reach, and all that they leave behind is ended.",
        )
    } else if found.scopes {
        (
            Partly,
            "Commands signal and trace only what they started themselves. They see the names and arguments of your \
             other processes, and can slow them down.",
        )
    } else if layers.landlock {
        (Partly, "Commands trace only what they started themselves. They see your other processes and can end them.")
    } else {
        (Open, "Commands see and can end every process of this user.")
    }
}

fn network_of(found: ConfinementSupport, network: Network) -> (ConfinedState, &'static str) {
    let layers = found.layers;
    match network {
        Network::Open => (
            Open,
            "Commands use this machine's network as its user does, services that listen on this machine included. \
             The setting network: none takes it from them.",
        ),
        Network::None if layers.namespaces => (Kept, "Commands have no network but a loopback of their own."),
        Network::None if layers.seccomp => (Kept, "Commands have no network."),
        Network::None if layers.landlock => {
            (Partly, "Commands cannot open TCP connections. This kernel does not keep them from UDP and the like.")
        }
        Network::None => (Open, "Nothing on this machine keeps commands from the network."),
    }
}

/// An amount of memory as people write it.
pub fn amount(bytes: u64) -> String {
    match bytes >> 20 {
        mib if mib >= 10 << 10 || mib % (1 << 10) == 0 && mib > 0 => format!("{} GiB", mib >> 10),
        mib if mib >= 1 << 10 => format!("{:.1} GiB", mib as f64 / 1024.0),
        mib => format!("{mib} MiB"),
    }
}

fn of_memory(found: ConfinementSupport, memory: u64) -> (ConfinedState, String) {
    let most = amount(memory);
    let uncounted = if found.layers.namespaces {
        "What the kernel keeps for them in pipes, and files in memory that one process sends to another, are not counted."
    } else {
        "What they write to files in memory (/dev/shm), what the kernel keeps for them in pipes and System V's objects, \
         and what a process hides from others of its user are not counted."
    };
    let sentence = format!(
        "A command and all that it starts is ended when it uses more than {most} of memory, looked at four times a \
         second, or has more than {} processes. {uncounted}",
        crate::hold::MAX_PROCESSES
    );
    (Partly, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::Layers;

    #[test]
    fn every_subject_has_a_word_and_less_layers_never_keep_more() {
        let weight = |state: ConfinedState| match state {
            Kept => 2,
            Partly => 1,
            Open => 0,
        };
        let of = |layers: Layers, network| {
            let found =
                ConfinementSupport { layers, overlays: layers.namespaces, scopes: layers.landlock, sockets: false };
            subjects(found, network, 4 << 30)
        };
        for network in [Network::Open, Network::None] {
            let all = of(Layers::default(), network);
            let landlock = of(Layers { namespaces: false, ..Layers::default() }, network);
            let none = of(Layers::NONE, network);
            for ((all, landlock), none) in all.iter().zip(&landlock).zip(&none) {
                assert!(weight(all.state) >= weight(landlock.state), "{all:?} {landlock:?}");
                assert!(weight(landlock.state) >= weight(none.state), "{landlock:?} {none:?}");
                assert!(all.sentence.len() > 20 && !none.sentence.contains("Landlock"));
            }
            let names: Vec<_> = all.iter().map(|subject| subject.name.as_str()).collect();
            assert_eq!(names, ["files", "sockets", "terminals", "processes", "network", "memory"]);
        }
        assert_eq!(of(Layers::NONE, Network::Open)[0].state, Open);
    }

    #[test]
    fn amounts_are_short() {
        assert_eq!([4 << 30, 512 << 20, 24 << 30].map(amount), ["4 GiB", "512 MiB", "24 GiB"]);
    }
}
