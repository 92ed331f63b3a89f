# The picker: one static binary and the CA bundle, nothing else.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY pkg pkg
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -ldflags "-s -w -X github.com/warmpath/warmpath/pkg/telemetry.version=$VERSION" -o /epp ./cmd/epp

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /epp /epp
USER 65532:65532
EXPOSE 9002 9003 9004 9090
ENTRYPOINT ["/epp"]
