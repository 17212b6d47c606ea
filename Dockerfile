# One image, one program: the Board, with the static daemon-agent that it gives to work machines.

# What the pages load, exactly as the lock file pins it.
FROM node:20-bookworm-slim AS assets
WORKDIR /src
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --no-audit --no-fund

FROM rust:1.95-bookworm AS build
WORKDIR /src
COPY Cargo.toml Cargo.lock ./
COPY .cargo .cargo
COPY protocol protocol
COPY server server
COPY daemon-agent daemon-agent
COPY tests tests
COPY migrations migrations
COPY templates templates
COPY static static
COPY --from=assets /src/node_modules node_modules
# `--build-arg PROFILE=release` builds in a fraction of the time, for trying: the programs are larger.
ARG PROFILE=dist
# A target triple keeps crt-static away from build scripts; the daemon must run on whatever Linux a work machine has.
RUN triple="$(rustc -vV | sed -n 's/^host: //p')" \
 && cargo build --locked --profile "$PROFILE" -p server \
 && RUSTFLAGS="-C target-feature=+crt-static" cargo build --locked --profile "$PROFILE" --target "$triple" -p daemon-agent \
 && mkdir /out \
 && cp "target/$PROFILE/viber-board" "target/$triple/$PROFILE/daemon-agent" /out/

FROM debian:bookworm-slim
RUN apt-get update \
 && apt-get install -y --no-install-recommends ca-certificates \
 && rm -rf /var/lib/apt/lists/* \
 && groupadd --system --gid 7400 board \
 && useradd --system --uid 7400 --gid 7400 --home-dir /data --shell /usr/sbin/nologin board \
 && install -d -o board -g board -m 0700 /data
# The Board finds the daemon beside itself and serves it at /download/daemon-agent.
COPY --from=build /out/viber-board /out/daemon-agent /usr/local/bin/
USER board
VOLUME /data
ENV VIBER_BOARD_DATA=/data VIBER_BOARD_LISTEN=0.0.0.0:7400 VIBER_BOARD_LOG=json
EXPOSE 7400
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=20s --retries=3 \
  CMD ["bash", "-c", "exec 3<>/dev/tcp/127.0.0.1/${VIBER_BOARD_LISTEN##*:} && printf 'GET /readyz HTTP/1.0\\r\\nHost: localhost\\r\\n\\r\\n' >&3 && head -n 1 <&3 | grep -q ' 200 '"]
ENTRYPOINT ["viber-board"]
CMD ["serve"]
