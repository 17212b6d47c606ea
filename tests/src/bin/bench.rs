//! `make bench`: the figures of a release build, as a table and as JSON.

#[tokio::main(flavor = "multi_thread", worker_threads = 2)]
async fn main() {
    board_tests::bench::main().await;
}
