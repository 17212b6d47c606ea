//! What the sandbox of a command costs: `true` as an agent's shell runs it, against a bare start of the same program.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
    time::Instant,
};

use daemon_agent::{
    confinement,
    hold::{self, HoldOptions, SupervisedCommand},
    sandbox::{Layers, Rules},
};

use super::{
    Scale,
    load::Latencies,
    proc::{Boards, Watch},
    report::{Bound, Measured},
};
use crate::programs::program;

pub(super) async fn measure(scale: Scale) -> Vec<Measured> {
    let runs = scale.count(300, 50);
    let folder = tempfile::tempdir().expect("a folder");
    for place in ["home", "space", "scratch"] {
        std::fs::create_dir(folder.path().join(place)).expect("a folder");
    }
    let at = |place: &str| folder.path().join(place);
    let rules = Rules { home: at("home"), write: vec![at("space"), at("scratch")], ..Rules::default() };
    let found = confinement::look(&program("daemon-agent"));
    let all = HoldOptions {
        cwd: Some(at("space")),
        scratch: Some(at("scratch")),
        rules: Some(rules),
        layers: found.layers,
        require: true,
        argv: ["sh", "-c", "true"].map(Into::into).to_vec(),
        ..HoldOptions::default()
    };
    let landlock = HoldOptions { layers: Layers { namespaces: false, ..found.layers }, ..all.clone() };
    let unconfined = HoldOptions { rules: None, ..all.clone() };
    let watch = Watch::machine();
    let (mut bare, mut whole, mut less, mut none) =
        (Latencies::default(), Latencies::default(), Latencies::default(), Latencies::default());
    // In turn, so that whatever else the machine does slows all of them.
    for _ in 0..runs {
        bare.push(alone());
        whole.push(held(&all).await);
        less.push(held(&landlock).await);
        none.push(held(&unconfined).await);
    }
    let over = whole.ms(50.0) - bare.ms(50.0);
    let mut measured = Measured::new("a `true` by the shell tool", "command", runs, Boards::default().spent(&watch))
        .figure("over a bare spawn, p50", over, "ms", Bound::AtMost(15.0))
        .figure("bare spawn, p50", bare.ms(50.0), "ms", None)
        .figure("all layers, p50", whole.ms(50.0), "ms", None)
        .figure("all layers, p95", whole.ms(95.0), "ms", None)
        .figure("Landlock and seccomp, p50", less.ms(50.0), "ms", None)
        .figure("supervisor alone, p50", none.ms(50.0), "ms", None);
    measured.note = format!("layers of this machine: {}", found.layers);
    vec![measured]
}

/// The same program without anything around it.
fn alone() -> std::time::Duration {
    let began = Instant::now();
    let status = Command::new("sh").args(["-c", "true"]).stdin(Stdio::null()).stdout(Stdio::null()).status();
    assert!(status.expect("started").success());
    began.elapsed()
}

/// From the call to the answer that everything is over.
async fn held(options: &HoldOptions) -> std::time::Duration {
    let began = Instant::now();
    let path = std::env::var_os("PATH").unwrap_or_default();
    let supervisor: PathBuf = program("daemon-agent");
    let command = hold::CommandSpec { supervisor, options: options.clone(), env: vec![("PATH".into(), path)] };
    let (mut held, output) = SupervisedCommand::start(command).await.expect("started");
    let ended = held.ended().await;
    drop(output);
    assert_eq!((ended.code, ended.killed, ended.left), (Some(0), 0, 0));
    began.elapsed()
}
