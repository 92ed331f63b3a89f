package eventplane

import (
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base32"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// secureServer is a NATS server with a configuration file.
type secureServer struct {
	t      *testing.T
	conf   string
	port   int
	server *server.Server

	publishers []*nats.Conn
}

// startSecure runs a server with the given configuration, on one port for good.
func startSecure(t *testing.T, port int, config string) *secureServer {
	t.Helper()
	s := &secureServer{t: t, conf: filepath.Join(t.TempDir(), "nats.conf"), port: port}
	s.write(config)
	s.start()
	t.Cleanup(s.stop)
	return s
}

func (s *secureServer) address() string { return fmt.Sprintf("nats://127.0.0.1:%d", s.port) }

func (s *secureServer) write(config string) {
	s.t.Helper()
	writeFile(s.t, s.conf, fmt.Sprintf("listen: \"127.0.0.1:%d\"\n%s\n", s.port, config))
}

func (s *secureServer) start() {
	s.t.Helper()
	opts, err := server.ProcessConfigFile(s.conf)
	if err != nil {
		s.t.Fatal(err)
	}
	opts.NoLog, opts.NoSigs = true, true
	opts.AuthTimeout, opts.TLSTimeout = patience.Seconds(), patience.Seconds()
	if s.server, err = server.NewServer(opts); err != nil {
		s.t.Fatal(err)
	}
	s.server.Start()
	if !s.server.ReadyForConnections(patience) {
		s.t.Fatal("the NATS server did not start")
	}
}

func (s *secureServer) stop() {
	s.server.Shutdown()
	s.server.WaitForShutdown()
}

func (s *secureServer) reload(config string) {
	s.t.Helper()
	// A server that puts a client out reads how much that one sent while it may still be
	// adding the last of it up, which is a race of its own. It has done so when it answers
	// the second of two pings.
	for _, conn := range s.publishers {
		for range 2 {
			if err := conn.FlushTimeout(patience); err != nil && !conn.IsClosed() {
				s.t.Fatal(err)
			}
		}
	}
	s.write(config)
	if err := s.server.Reload(); err != nil {
		s.t.Fatal(err)
	}
}

func (s *secureServer) restart(config string) {
	s.t.Helper()
	s.stop()
	s.write(config)
	s.start()
}

// publisher connects with the same secrets as a plane.
func (s *secureServer) publisher(security Security) *nats.Conn {
	s.t.Helper()
	secrets, err := newSecrets(security, slog.New(slog.DiscardHandler))
	if err != nil {
		s.t.Fatal(err)
	}
	options, _ := secrets.options()
	var closed sync.WaitGroup
	closed.Add(1)
	conn, err := nats.Connect(s.address(), append(options, nats.NoReconnect(), nats.Timeout(patience),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), nats.ClosedHandler(func(*nats.Conn) { closed.Done() }))...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		conn.Close()
		closed.Wait()
	})
	s.publishers = append(s.publishers, conn)
	return conn
}

// newSecureRig is newRig with security, and with less patience.
func newSecureRig(t *testing.T, address string, security Security) *rig {
	t.Helper()
	r := newRig(t, address, "dynamo")
	cfg := r.plane.cfg
	cfg.Security = security
	plane, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	plane.reconnectWait, plane.rereadEvery = 20*time.Millisecond, 10*time.Millisecond
	r.plane = plane
	r.plane.onMessage = r.noteMessage
	return r
}

// writeFile replaces a file in one step, as the mounts of Kubernetes Secrets do.
func writeFile(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(name+".new", []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(name+".new", name); err != nil {
		t.Fatal(err)
	}
}

// authority signs certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pem  string
}

func newAuthority(t *testing.T) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, cert: &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	a.pem = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	return a
}

// sign makes a certificate, for a server on the loopback and for a client, that is
// good until then. names are more names of the server.
func (a *authority) sign(t *testing.T, until time.Time, names ...string) (cert, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: "picker"},
		NotBefore: time.Now().Add(-2 * time.Hour), NotAfter: until, DNSNames: names,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	if len(names) == 0 {
		template.IPAddresses = []net.IP{net.IPv4(127, 0, 0, 1)}
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, &private.PublicKey, a.key)
	if err != nil {
		t.Fatal(err)
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})),
		string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}))
}

// kind is the first byte of an nkey: what the key is of.
type kind byte

const (
	ofOperator kind = 14 << 3
	ofAccount  kind = 0
	ofUser     kind = 20 << 3
	ofSeed     kind = 18 << 3
)

// nkey is a key pair in the form of NATS.
type nkey struct{ seed, public string }

func newNKey(t *testing.T, of kind) nkey {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	head := []byte{byte(ofSeed) | byte(of)>>5, byte(of) << 3}
	return nkey{encodeNKey(append(head, private.Seed()...)), encodeNKey(append([]byte{byte(of)}, public...))}
}

// encodeNKey adds the checksum, CRC-16/XMODEM, and writes it all in base 32.
func encodeNKey(raw []byte) string {
	var crc uint16
	for _, b := range raw {
		crc ^= uint16(b) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(append(raw, byte(crc), byte(crc>>8)))
}

func (k nkey) sign(t *testing.T, text string) []byte {
	t.Helper()
	raw, err := base32.StdEncoding.WithPadding(base32.NoPadding).DecodeString(k.seed)
	if err != nil {
		t.Fatal(err)
	}
	return ed25519.Sign(ed25519.NewKeyFromSeed(raw[2:34]), []byte(text))
}

// jwt is a statement of k about subject, in the second version of NATS' JWTs.
func (k nkey) jwt(t *testing.T, subject nkey, claims map[string]any) string {
	t.Helper()
	claims["version"] = 2
	payload, err := json.Marshal(map[string]any{
		"jti": subject.public, "iat": time.Now().Unix(), "iss": k.public, "name": "test", "sub": subject.public, "nats": claims,
	})
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding
	text := b64.EncodeToString([]byte(`{"typ":"JWT","alg":"ed25519-nkey"}`)) + "." + b64.EncodeToString(payload)
	return text + "." + b64.EncodeToString(k.sign(t, text))
}

// newOperator returns the configuration of a server with an operator and an
// account, and the credentials of one user of it.
func newOperator(t *testing.T) (config, credentials string, user nkey) {
	t.Helper()
	operator, account, user := newNKey(t, ofOperator), newNKey(t, ofAccount), newNKey(t, ofUser)
	unlimited := map[string]any{
		"subs": -1, "data": -1, "payload": -1, "imports": -1, "exports": -1, "wildcards": true, "conn": -1, "leaf": -1,
	}
	config = fmt.Sprintf("operator: %q\nresolver: MEMORY\nresolver_preload: { %s: %q }\n",
		operator.jwt(t, operator, map[string]any{"type": "operator"}), account.public,
		operator.jwt(t, account, map[string]any{"type": "account", "limits": unlimited}))
	jwt := account.jwt(t, user, map[string]any{"type": "user", "subs": -1, "data": -1, "payload": -1})
	return config, strings.Join([]string{
		"-----BEGIN NATS USER JWT-----", jwt, "------END NATS USER JWT------", "",
		"-----BEGIN USER NKEY SEED-----", user.seed, "------END USER NKEY SEED------", "",
	}, "\n"), user
}
