# The picker, for those who build their own image: "make image" makes the same one
# without a container engine. One static binary, the CA bundle and a user.
FROM --platform=$BUILDPLATFORM golang:1.26 AS build
ARG TARGETOS
ARG TARGETARCH
ARG VERSION=dev
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY internal internal
COPY pkg pkg
RUN CGO_ENABLED=0 GOOS=$TARGETOS GOARCH=$TARGETARCH \
    go build -trimpath -buildvcs=false -ldflags "-s -w -X github.com/warmpath/warmpath/pkg/telemetry.version=$VERSION" -o /epp ./cmd/epp
RUN echo 'nonroot:x:65532:65532:nonroot:/:/sbin/nologin' > /passwd && echo 'nonroot:x:65532:' > /group

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build /passwd /etc/passwd
COPY --from=build /group /etc/group
COPY --from=build /epp /epp
USER 65532:65532
EXPOSE 9002 9003 9004 9090
ENTRYPOINT ["/epp"]
