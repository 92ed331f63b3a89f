// Package embedded runs a NATS server inside this process: for trials, the demo,
// benchmarks and tests. It keeps nothing, and nothing protects it: anybody who
// reaches its port may publish.
package embedded

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/nats-io/nats-server/v2/server"
)

// readyWait is far above the milliseconds that a start takes.
const readyWait = 10 * time.Second

// Server is a running NATS server.
type Server struct {
	server *server.Server
	url    string
}

// Start serves NATS on host:port. No host means all addresses, port 0 any free
// one. The caller must call Close.
func Start(address string) (*Server, error) {
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS: %w", err)
	}
	port, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS: port %q is not 0 to 65535", text)
	}
	options := &server.Options{Host: host, Port: int(port), NoLog: true, NoSigs: true}
	if port == 0 {
		options.Port = server.RANDOM_PORT
	}
	// The server ends the whole process when its port is taken: find out first.
	probe, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS: %w", err)
	}
	probe.Close()
	s, err := server.NewServer(options)
	if err != nil {
		return nil, fmt.Errorf("embedded NATS: %w", err)
	}
	s.Start()
	if !s.ReadyForConnections(readyWait) {
		s.Shutdown()
		return nil, errors.New("embedded NATS: not ready after " + readyWait.String())
	}
	return &Server{s, s.ClientURL()}, nil
}

// URL is where a client in this process reaches it.
func (s *Server) URL() string { return s.url }

// Close stops the server and waits for it.
func (s *Server) Close() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}
