# The same image as `make image` makes without Docker: two static programs and nothing else.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETARCH
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY main.go ./
COPY api api
COPY controllers controllers
COPY quorum quorum
ENV CGO_ENABLED=0 GOOS=linux GOARCH=$TARGETARCH
RUN go build -trimpath -buildvcs=false -ldflags="-s -w" -o /out/manager . && \
    go build -trimpath -buildvcs=false -ldflags="-s -w" -o /out/quorum ./quorum

FROM scratch
LABEL org.opencontainers.image.title=kraft-operator org.opencontainers.image.licenses=Apache-2.0
COPY --from=build /out/manager /out/quorum /
USER 65532:65532
ENTRYPOINT ["/manager"]
