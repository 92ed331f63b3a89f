package app

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	extprocv3 "github.com/envoyproxy/go-control-plane/envoy/service/ext_proc/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/warmpath/warmpath/api/v1alpha1"
)

// authority signs certificates of a test.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	file string // PEM
}

func newAuthority(t *testing.T, dir string) *authority {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test authority"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	a := &authority{key: key, file: filepath.Join(dir, "ca.crt")}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		t.Fatal(err)
	}
	writePEM(t, a.file, "CERTIFICATE", der)
	return a
}

// sign writes a certificate for "picker.test" and its key, as tools do: each file
// in one step.
func (a *authority) sign(t *testing.T, serial int64, certFile, keyFile string) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(serial), NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		DNSNames: []string{"picker.test"}, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.cert, key.Public(), a.key)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatal(err)
	}
	writePEM(t, certFile, "CERTIFICATE", der)
	writePEM(t, keyFile, "PRIVATE KEY", secret)
}

func writePEM(t *testing.T, name, kind string, der []byte) {
	t.Helper()
	next := name + ".next"
	if err := os.WriteFile(next, pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(next, name); err != nil {
		t.Fatal(err)
	}
}

// encrypted runs a picker with TLS; its log has everything.
func encrypted(t *testing.T, spec v1alpha1.TLSSpec, workers string) *running {
	t.Helper()
	dir, config := files(t, noText+noEvents, workers)
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Server.ExtProcTLS = &spec
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	log := &logBuffer{}
	a, err := New(cfg, slog.New(slog.NewTextHandler(log, &slog.HandlerOptions{Level: slog.LevelDebug})))
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, a, dir, log)
	r.waitReady(t)
	return r
}

// serial begins TLS with the picker and returns the serial number that it shows.
func (r *running) serial(t *testing.T, cfg *tls.Config) int64 {
	t.Helper()
	d := tls.Dialer{Config: cfg}
	conn, err := d.DialContext(t.Context(), "tcp", r.ExtProcAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	state := conn.(*tls.Conn).ConnectionState()
	if state.NegotiatedProtocol != "h2" {
		t.Errorf("protocol %q", state.NegotiatedProtocol)
	}
	return state.PeerCertificates[0].SerialNumber.Int64()
}

// TestSelfSigned: the certificate is for the names that it should be for, lasts,
// and serves streams and health; old TLS and none are refused, with a word in the
// log of who looks for it. The health port needs no TLS.
func TestSelfSigned(t *testing.T) {
	t.Setenv("POD_IP", "10.1.2.3")
	r := encrypted(t, v1alpha1.TLSSpec{SelfSigned: true}, aggregated)
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	var leaf *x509.Certificate
	secure, err := grpc.NewClient(r.ExtProcAddr().String(), grpc.WithTransportCredentials(credentials.NewTLS(&tls.Config{
		InsecureSkipVerify: true,
		VerifyConnection:   func(s tls.ConnectionState) error { leaf = s.PeerCertificates[0]; return nil },
	})))
	if err != nil {
		t.Fatal(err)
	}
	defer secure.Close()
	ctx, cancel := context.WithTimeout(t.Context(), deadline)
	defer cancel()
	probe := func(conn *grpc.ClientConn) error {
		_, err := healthv1.NewHealthClient(conn).Check(ctx, &healthv1.HealthCheckRequest{Service: "readiness"})
		return err
	}
	if err := probe(secure); err != nil {
		t.Fatalf("health over TLS: %v", err)
	}
	for _, name := range []string{host, "localhost", "10.1.2.3"} {
		if err := leaf.VerifyHostname(name); err != nil {
			t.Error(err)
		}
	}
	if left := time.Until(leaf.NotAfter); left < 9*365*24*time.Hour {
		t.Errorf("it lasts %v", left)
	}
	_, body := tokens(1, 8)
	q := caller{t, extprocv3.NewExternalProcessorClient(secure)}.begin(completions)
	if set := q.routed(body); set["x-gateway-destination-endpoint"] != "10.0.3.1:8000" {
		t.Errorf("routed %v", set)
	}
	q.finish()
	if got := r.health(t); got != healthv1.HealthCheckResponse_SERVING {
		t.Errorf("health port: %v", got)
	}

	plain, err := grpc.NewClient(r.ExtProcAddr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := probe(plain); err == nil {
		t.Error("served without TLS")
	}
	const said = `level=DEBUG msg="a client speaks to the ext-proc port without TLS, which server.extProcTLS asks for"`
	r.eventually(t, "the log tells", func() bool { return r.log.count(said) > 0 })
	old := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}}
	if conn, err := old.DialContext(ctx, "tcp", r.ExtProcAddr().String()); err == nil {
		conn.Close()
		t.Error("TLS 1.1 is accepted")
	}
	if n := r.log.count("level=WARN") + r.log.count("level=ERROR"); n != 0 {
		t.Errorf("a client that cannot be served is shouted about:\n%s", r.log)
	}
}

// TestCertificateIsReadAgain: a new pair is used from the next connection on, and
// one that cannot be used never is, which is said once.
func TestCertificateIsReadAgain(t *testing.T) {
	dir := t.TempDir()
	ca := newAuthority(t, dir)
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	ca.sign(t, 7, certFile, keyFile)
	log := &logBuffer{}
	p := &certificatePair{certFile: certFile, keyFile: keyFile, log: textLog(log)}
	if err := p.load(); err != nil {
		t.Fatal(err)
	}
	want := func(when string, serial int64, lines int) {
		t.Helper()
		for range 3 {
			c, err := p.get(nil)
			if err != nil {
				t.Fatalf("%s: %v", when, err)
			}
			if got := c.Leaf.SerialNumber.Int64(); got != serial {
				t.Errorf("%s: certificate %d, want %d", when, got, serial)
			}
		}
		if got := log.count("cannot be used"); got != lines {
			t.Errorf("%s: %d lines, want %d\n%s", when, got, lines, log)
		}
	}
	want("at first", 7, 0)
	ca.sign(t, 8, certFile, filepath.Join(dir, "later.key"))
	want("with the key of another", 7, 1)
	if err := os.Rename(filepath.Join(dir, "later.key"), keyFile); err != nil {
		t.Fatal(err)
	}
	want("with both", 8, 1)
	if err := os.Remove(certFile); err != nil {
		t.Fatal(err)
	}
	want("without a file", 8, 2)
	if err := os.WriteFile(certFile, []byte("no PEM"), 0o600); err != nil {
		t.Fatal(err)
	}
	want("with a broken one", 8, 3)
	ca.sign(t, 9, certFile, keyFile)
	want("with a new pair", 9, 3)
	p.every = time.Hour
	p.looked = time.Now()
	ca.sign(t, 10, certFile, keyFile)
	want("before it is time to look", 9, 3)
}

// TestCertificateAtTheStart: files that cannot be used are an error that names them.
func TestCertificateAtTheStart(t *testing.T) {
	dir := t.TempDir()
	certFile, keyFile := filepath.Join(dir, "tls.crt"), filepath.Join(dir, "tls.key")
	_, err := serverTLS(&v1alpha1.TLSSpec{CertFile: certFile, KeyFile: keyFile}, textLog(&logBuffer{}))
	if err == nil || !strings.Contains(err.Error(), "server.extProcTLS") || !strings.Contains(err.Error(), certFile) {
		t.Errorf("error %v", err)
	}
	_, config := files(t, noText+noEvents, aggregated)
	cfg, err := v1alpha1.Load(config)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Server.ExtProcTLS = &v1alpha1.TLSSpec{CertFile: certFile, KeyFile: keyFile}
	cfg.Server.ExtProcAddress = net.JoinHostPort("127.0.0.1", "0")
	if a, err := New(cfg, textLog(&logBuffer{})); err == nil {
		a.Close()
		t.Error("a picker without its certificate starts")
	}
	if cfg, err := serverTLS(nil, textLog(&logBuffer{})); cfg != nil || err != nil {
		t.Errorf("nothing configured: %v, %v", cfg, err)
	}
}
