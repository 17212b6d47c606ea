//! The API's stream of a task's events: server-sent events (WHATWG HTML, section 9.2), one frame an event.

use std::{convert::Infallible, task::Poll, time::Duration};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, header},
    response::{IntoResponse, Response},
};
use futures_util::{FutureExt, Stream, StreamExt, stream};
use serde::Deserialize;
use tokio::time::{Instant, sleep, sleep_until};

use crate::{
    domain::committed::{Committed, Item},
    hub::Changed,
    live::{StreamFrame, bus::BusFrame},
    measure,
    state::Board,
    web::{Caller, api::shapes, layers::api_limits::OpenStream},
};

/// A comment at this interval keeps middleboxes from closing an idle stream.
pub const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// How often a stream asks whether its caller may still look.
const REVOCATION_CHECK_INTERVAL: Duration = Duration::from_secs(2);

/// Answers with a stream. `place` among the caller's open streams is released when it is over.
pub fn answer(frames: impl Stream<Item = StreamFrame> + Send + 'static, place: OpenStream) -> Response {
    answer_bytes(frames.map(move |frame| {
        let _held = &place;
        encode(&frame)
    }))
}

/// The same with frames that are bytes already.
pub fn answer_bytes(bytes: impl Stream<Item = Bytes> + Send + 'static) -> Response {
    let viewer = measure::Viewer::open();
    let held = kept_alive(bytes, KEEP_ALIVE_INTERVAL).map(move |bytes| {
        let _held = &viewer;
        Ok::<_, Infallible>(bytes)
    });
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream")),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
        // nginx buffers answers unless told otherwise.
        (header::HeaderName::from_static("x-accel-buffering"), HeaderValue::from_static("no")),
    ];
    (headers, Body::from_stream(held)).into_response()
}

/// Adds a comment whenever nothing was sent for a while. One timer is kept for that: a new one for each flush would cost
/// more than the flush.
pub fn kept_alive(
    bytes: impl Stream<Item = Bytes> + Send + 'static,
    every: Duration,
) -> impl Stream<Item = Bytes> + Send + 'static {
    let (mut bytes, mut alarm, mut last_sent) = (Box::pin(bytes), Box::pin(sleep(every)), Instant::now());
    stream::poll_fn(move |cx| {
        if let Poll::Ready(next) = bytes.poll_next_unpin(cx) {
            last_sent = Instant::now();
            return Poll::Ready(next);
        }
        while alarm.poll_unpin(cx).is_ready() {
            let now = Instant::now();
            let silent = now >= last_sent + every;
            if silent {
                last_sent = now;
            }
            alarm.as_mut().reset(last_sent + every);
            if silent {
                return Poll::Ready(Some(Bytes::from_static(b":\n\n")));
            }
        }
        Poll::Pending
    })
}

/// Resolves when the caller may not look at this team any more. The hub says so, and the database is asked every two
/// seconds, because another program (the command line, another replica) may have changed it.
pub async fn revoked(board: Board, caller: Caller) {
    let mut news = board.hub.subscribe_revoked(&caller.team.id);
    let mut asked = Instant::now();
    loop {
        tokio::select! {
            heard = news.next() => {
                if !matches!(heard, Changed::Revoked(_) | Changed::Anything) {
                    continue;
                }
            }
            () = sleep_until(asked + REVOCATION_CHECK_INTERVAL) => {}
        }
        asked = Instant::now();
        if !caller.still(&board).await {
            return;
        }
    }
}

/// A frame as bytes. Events are encoded once for all who see the whole run.
fn encode(frame: &StreamFrame) -> Bytes {
    match frame {
        StreamFrame::Task(task) => {
            let json = serde_json::to_string(&shapes::TaskResource::from((**task).clone()));
            plain("task", &json.unwrap_or_else(|error| format!("{{\"error\":\"{error}\"}}")))
        }
        StreamFrame::Reset => plain("reset", "{}"),
        StreamFrame::End(why) => plain("end", &format!("{{\"reason\":\"{why}\"}}")),
        StreamFrame::Events { run, after } if *after < run.from => run.json.get_or_init(|| events(run, 0)).clone(),
        StreamFrame::Events { run, after } => events(run, *after),
    }
}

/// A frame of a viber's bus: an event says whose it is, and its id is where the reader is once it has it.
pub fn encode_bus(frame: &BusFrame) -> Bytes {
    match frame {
        BusFrame::Task(task) => encode(&StreamFrame::Task(task.clone())),
        BusFrame::Over { task, why } => plain("over", &format!("{{\"taskId\":\"{task}\",\"reason\":\"{why}\"}}")),
        BusFrame::End(why) => encode(&StreamFrame::End(*why)),
        BusFrame::Events { run, after, at } => {
            let around = at.around(&run.task, run.attempt);
            if *after >= run.from {
                return bus_events(run, *after, &around);
            }
            // Readers who keep up are at the same place: it is encoded once for all of them.
            let place = format!("{} {}", around.0, around.1);
            let (known, bytes) = run.bus.get_or_init(|| (place.clone(), bus_events(run, 0, &around)));
            if *known == place { bytes.clone() } else { bus_events(run, 0, &around) }
        }
    }
}

fn bus_events(run: &Committed, after: u64, (before, behind): &(String, String)) -> Bytes {
    let place = before.len() + behind.len();
    let mut text = String::with_capacity(run.size() + run.items.len() * (160 + place));
    let (task, attempt) = (&run.task, run.attempt);
    for item in run.items.iter().filter(|item| item.seq > after) {
        text.push_str(&format!("id: {before}{}{behind}\n", item.seq));
        let data = format!("{{\"taskId\":\"{task}\",\"attempt\":{attempt},\"event\":{}}}", item.json);
        write(&mut text, None, &name(item), &data);
    }
    text.into()
}

/// A frame that is no event of the task: it has no id, so that the follower's cursor stays where it is.
pub fn plain(event: &str, data: &str) -> Bytes {
    let mut text = String::with_capacity(data.len() + event.len() + 24);
    write(&mut text, None, event, data);
    text.into()
}

fn events(run: &Committed, after: u64) -> Bytes {
    let mut text = String::with_capacity(run.size() + run.items.len() * 64);
    for item in run.items.iter().filter(|item| item.seq > after) {
        write(&mut text, Some((run.attempt, item.seq)), &name(item), &item.json);
    }
    text.into()
}

/// The event's `type`; one that could break out of its line is not named.
fn name(item: &Item) -> String {
    #[derive(Deserialize)]
    struct EventType {
        r#type: String,
    }
    let known = |name: &String| name.bytes().all(|b| b.is_ascii_alphanumeric() || b":-_.".contains(&b));
    let typed = serde_json::from_str::<EventType>(&item.json).map(|typed| typed.r#type).ok();
    typed.filter(known).filter(|name| !name.is_empty()).unwrap_or_else(|| "unknown".to_owned())
}

fn write(text: &mut String, id: Option<(u32, u64)>, event: &str, data: &str) {
    use std::fmt::Write;
    if let Some((attempt, seq)) = id {
        writeln!(text, "id: {attempt}.{seq}").expect("writing to a String succeeds");
    }
    text.push_str("event: ");
    text.push_str(event);
    // JSON may hold line ends between its tokens; each line of data is a line of its own.
    for line in data.split(['\r', '\n']) {
        text.push_str("\ndata: ");
        text.push_str(line);
    }
    text.push_str("\n\n");
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::TaskId;

    use super::*;
    use crate::live::StreamEnd;

    fn run(items: &[(u64, &str)]) -> Arc<Committed> {
        let items: Vec<Item> = items.iter().map(|(seq, json)| Item { seq: *seq, json: (*json).into() }).collect();
        Arc::new(Committed::new(TaskId::new(1), 2, items[0].seq, items))
    }

    fn text(frame: StreamFrame) -> String {
        String::from_utf8(encode(&frame).to_vec()).expect("text")
    }

    #[test]
    fn an_event_is_framed_byte_for_byte_and_encoded_once() {
        let run = run(&[(3, r#"{"seq":3,"type":"task:started", "x": 1}"#), (4, r#"{"seq":4,"type":"task:progress"}"#)]);
        let whole = text(StreamFrame::Events { run: run.clone(), after: 2 });
        assert_eq!(
            whole,
            "id: 2.3\nevent: task:started\ndata: {\"seq\":3,\"type\":\"task:started\", \"x\": 1}\n\n\
             id: 2.4\nevent: task:progress\ndata: {\"seq\":4,\"type\":\"task:progress\"}\n\n"
        );
        assert!(run.json.get().is_some());
        let rest = text(StreamFrame::Events { run, after: 3 });
        assert!(rest.starts_with("id: 2.4\n"), "{rest}");
    }

    #[test]
    fn no_event_can_break_out_of_its_frame() {
        let framed = text(StreamFrame::Events {
            run: run(&[(1, "{\"seq\":1,\n\"type\":\"a\\nevent: end\",\r\n\"y\":2}")]),
            after: 0,
        });
        assert_eq!(
            framed,
            "id: 2.1\nevent: unknown\ndata: {\"seq\":1,\ndata: \"type\":\"a\\nevent: end\",\ndata: \ndata: \"y\":2}\n\n"
        );
    }

    #[test]
    fn what_is_no_event_has_no_id() {
        assert_eq!(text(StreamFrame::Reset), "event: reset\ndata: {}\n\n");
        assert_eq!(text(StreamFrame::End(StreamEnd::Shutdown)), "event: end\ndata: {\"reason\":\"shutdown\"}\n\n");
    }

    #[tokio::test]
    async fn an_idle_stream_gets_comments() {
        let quiet = stream::once(async { Bytes::from_static(b"x") }).chain(stream::pending());
        let mut kept = Box::pin(kept_alive(quiet, Duration::from_millis(5)));
        assert_eq!(kept.next().await.as_deref(), Some(&b"x"[..]));
        assert_eq!(kept.next().await.as_deref(), Some(&b":\n\n"[..]));
        assert_eq!(kept.next().await.as_deref(), Some(&b":\n\n"[..]));
    }
}
