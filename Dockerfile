# syntax=docker/dockerfile:1
# One image with the node and the operator, static and without anything else in it.
ARG GO_VERSION=1.26
FROM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY api api
COPY cmd cmd
COPY controllers controllers
COPY internal internal
COPY pkg pkg
ARG VERSION=dev
RUN CGO_ENABLED=0 GOFLAGS=-trimpath go build \
      -ldflags "-s -w -X github.com/highwater-io/highwater/internal/buildinfo.Version=${VERSION}" \
      -o /out/highwater-node ./cmd/node && \
    CGO_ENABLED=0 GOFLAGS=-trimpath go build \
      -ldflags "-s -w -X github.com/highwater-io/highwater/internal/buildinfo.Version=${VERSION}" \
      -o /out/highwater-operator ./cmd/operator

FROM scratch
COPY --from=build /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/
COPY --from=build /out/highwater-node /highwater-node
COPY --from=build /out/highwater-operator /highwater-operator
# A number, not a name: runAsNonRoot is checked against it, and there is no passwd file here.
USER 65532:65532
ENTRYPOINT ["/highwater-operator"]
