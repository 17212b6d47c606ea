//! Connections of programs: one that does not read is cut, and holds up nobody.

use std::{collections::BTreeMap, time::Duration};

use protocol::{AttemptRef, EventBody, TaskId};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::adapters::board::tests::mesh;

/// Says these texts, and then nothing.
struct Says(Vec<&'static str>);

/// Takes nothing that is written to it.
struct Stalls;

/// Takes everything.
struct Listens(mpsc::Sender<String>);

impl TextSource for Says {
    async fn next(&mut self) -> Option<String> {
        match self.0.pop() {
            Some(text) => Some(text.to_owned()),
            None => std::future::pending().await,
        }
    }
}

impl TextSink for Stalls {
    async fn send(&mut self, _text: String) -> std::io::Result<()> {
        std::future::pending().await
    }
}

impl TextSink for Listens {
    async fn send(&mut self, text: String) -> std::io::Result<()> {
        self.0.send(text).await.map_err(std::io::Error::other)
    }
}

fn stalling(texts: Vec<&'static str>) -> LocalClient<Says, Stalls> {
    let client = LocalClient::new("websocket", false, Says(texts), Stalls);
    LocalClient { stall_timeout: Duration::from_millis(300), ..client }
}

#[tokio::test]
async fn a_reader_that_stalls_is_cut_and_holds_up_nobody() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mesh, _files) = mesh(folder.path());
    mesh.outbox().keep_for(CLIENT_READER);
    let callbacks = || Callbacks::of("websocket", mesh.clone(), CancellationToken::new());
    let (to, mut frames) = mpsc::channel(64);
    let (stalls, listens) = (stalling(Vec::new()), LocalClient::new("websocket", false, Says(Vec::new()), Listens(to)));
    stalls.followed().subscribe(mesh.outbox(), &BTreeMap::new());
    listens.followed().subscribe(mesh.outbox(), &BTreeMap::new());
    let attempt = AttemptRef { task_id: TaskId::new(1), attempt: 1 };
    let work = async {
        mesh.outbox().begin(&attempt, "echo");
        for _ in 0..3 {
            mesh.outbox().append(&attempt, EventBody::Accepted {});
            assert!(frames.recv().await.is_some_and(|frame| frame.contains("task:accepted")));
        }
    };
    let cut = tokio::select! {
        (cut, ()) = async { tokio::join!(stalls.serve(callbacks()), work) } => cut,
        ended = listens.serve(callbacks()) => panic!("it is not the one that stalls: {ended:?}"),
    };
    assert!(cut.as_ref().is_err_and(|why| why.contains("took nothing")), "{cut:?}");
}

#[tokio::test]
async fn answers_that_are_not_taken_cut_as_well() {
    let folder = tempfile::tempdir().expect("a folder");
    let (mesh, _files) = mesh(folder.path());
    let client = stalling(vec![r#"{"type":"subscribe"}"#]);
    let cut = client.serve(Callbacks::of("websocket", mesh, CancellationToken::new())).await;
    assert!(cut.as_ref().is_err_and(|why| why.contains("took nothing")), "{cut:?}");
}
