# The commands of this house. `make run` and `make test` need Rust, Node.js with npm and a C compiler; nothing else by hand.

.PHONY: run check test test-long shots bench lint assets daemon-static

# A Board on SQLite in ./data with a local viber, until Ctrl-C.
run:
	@scripts/run

# Before every commit: format, clippy, unit tests and the house rules; less than a minute after a change of one file.
check:
	@scripts/check

# Everything that CI runs. TESTS="…" is handed to the runner: make test TESTS=delivery
test:
	@scripts/test $(TESTS)

# The long cases: kill loops, storms, soaks; about an hour, one line a case. TESTS="…" selects: make test-long TESTS=f01
test-long:
	@scripts/test-long $(TESTS)

# Pictures of every page, for a desk and a phone, light and dark, in target/shots.
shots:
	@scripts/shots

# What a release build does in a second and what it costs: a table, and target/bench.json. ONLY="idle page" picks measures.
bench:
	@scripts/bench

# Format, clippy, and the dependency rules where cargo-deny is installed.
lint: assets
	cargo fmt --all --check
	cargo clippy --workspace --all-targets --locked -- -D warnings
	@if command -v cargo-deny >/dev/null 2>&1; then cargo deny --offline check bans licenses sources; else echo "cargo-deny is not installed: deny.toml was not checked"; fi

# What the pages load from the npm registry.
assets:
	@scripts/assets

# The one file that the Board serves to work machines: no shared libraries.
daemon-static:
	RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile dist --target x86_64-unknown-linux-gnu -p daemon-agent
