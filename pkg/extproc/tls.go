package extproc

import (
	"crypto/tls"
	"errors"
	"log/slog"
	"net"

	"google.golang.org/grpc/credentials"
)

// encrypted is TLS that says in the log why a client could not begin it.
func (s *Server) encrypted(cfg *tls.Config) credentials.TransportCredentials {
	return handshakes{credentials.NewTLS(cfg), s.cfg.Log}
}

type handshakes struct {
	credentials.TransportCredentials

	log *slog.Logger
}

// ServerHandshake begins TLS with a client. Who fails may be a port scanner, so
// the log tells of it at the debug level only.
func (h handshakes) ServerHandshake(conn net.Conn) (net.Conn, credentials.AuthInfo, error) {
	secure, info, err := h.TransportCredentials.ServerHandshake(conn)
	if err != nil {
		plain := tls.RecordHeaderError{}
		if errors.As(err, &plain) {
			h.log.Debug("a client speaks to the ext-proc port without TLS, which server.extProcTLS asks for",
				"client", conn.RemoteAddr().String())
		} else {
			h.log.Debug("a client could not begin TLS on the ext-proc port", "client", conn.RemoteAddr().String(), "error", err)
		}
	}
	return secure, info, err
}

// Clone implements credentials.TransportCredentials.
func (h handshakes) Clone() credentials.TransportCredentials {
	return handshakes{h.TransportCredentials.Clone(), h.log}
}
